package mirroradm_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"milena/mirroradm"
)

// A mirror of everything but internal topics, started at once and for topics to come.
func ExampleClient_Start() {
	ctx := context.Background()
	cl, err := kgo.NewClient(kgo.SeedBrokers("standby:9092"), kgo.MaxVersions(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()
	adm := mirroradm.NewClient(cl)
	err = adm.Create(ctx, "dr", map[string]string{"bootstrap.servers": "kafka:9092", "mirror.source.cluster.id": "6PMpHYL9QkeyXRj9Nrp4KA"})
	if err != nil && !errors.Is(err, mirroradm.ClusterMirrorAlreadyExists) {
		fmt.Println(err)
		return
	}
	rs, err := adm.Start(ctx, "dr", nil, []string{".*"}, []string{"tmp-.*"})
	if err != nil && rs == nil {
		fmt.Println(err)
		return
	}
	fmt.Println("started:", rs.Succeeded(), "refused:", rs.Error())
}

// How far behind a mirror is. A lag that isn't known is never zero.
func ExampleClient_Describe() {
	ctx := context.Background()
	cl, err := kgo.NewClient(kgo.SeedBrokers("standby:9092"), kgo.MaxVersions(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()
	mirrors, err := mirroradm.NewClient(cl).Describe(ctx, "dr")
	if err == nil {
		err = mirrors.Error()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range mirrors[0].Partitions {
		lag, known := p.Lag()
		fmt.Println(p.Topic, p.Partition, p.State, lag, known, p.LastError)
	}
}

// Only what one wants to know: the states of a topic's first partition.
func ExampleClient_DescribeWith() {
	ctx := context.Background()
	cl, err := kgo.NewClient(kgo.SeedBrokers("standby:9092"), kgo.MaxVersions(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()
	mirrors, err := mirroradm.NewClient(cl).DescribeWith(ctx, mirroradm.DescribeOptions{
		Mirrors: []string{"dr"}, Topics: map[string][]int32{"orders": {0}}, State: true,
	})
	fmt.Println(mirrors, err)
}

// A planned switchover: what it will do, then what it did. After a failure Where says what state things are in.
func ExamplePlanSwitchover() {
	ctx := context.Background()
	source, err := kgo.NewClient(kgo.SeedBrokers("kafka:9092"), kgo.MaxVersions(nil), mirroradm.Software())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Close()
	standby, err := kgo.NewClient(kgo.SeedBrokers("standby:9092"), kgo.MaxVersions(nil), mirroradm.Software())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer standby.Close()
	s, err := mirroradm.PlanSwitchover(ctx, source, standby, "dr", mirroradm.SwitchoverOptions{
		Reverse: map[string]string{"bootstrap.servers": "standby:9092"}, MaxLag: 1000,
	})
	if err != nil {
		fmt.Println("nothing was changed:", err)
		return
	}
	if err := s.Run(ctx, func(step mirroradm.SwitchoverStep) { fmt.Println(step.Name, step.Took, step.Note) }); err != nil {
		fmt.Printf("%v; now %+v\n", err, s.Where(ctx))
		return
	}
	fmt.Println(s.Lost())
}
