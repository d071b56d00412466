package mirror

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/api"
	"milena/internal/coord/mirrorstate"
	"milena/internal/ids"
	"milena/internal/meta"
	"milena/internal/mirror"
	"milena/internal/mirrormsg"
)

// states are the coordinator's answers: each read takes the next.
type states struct {
	reads []any // a mirrormsg.State or an error; the last one stays
	wrote []mirrorstate.Write
	last  mirrorstate.Status
}

func (s *states) Read(context.Context, mirrorstate.Key, int32) (mirrorstate.Status, error) {
	x := s.reads[0]
	if len(s.reads) > 1 {
		s.reads = s.reads[1:]
	}
	if err, ok := x.(error); ok {
		return mirrorstate.Status{}, err
	}
	st := s.last
	st.State = x.(mirrormsg.State)
	return st, nil
}

func (s *states) Write(_ context.Context, w mirrorstate.Write) (mirrorstate.Status, error) {
	s.wrote = append(s.wrote, w)
	return mirrorstate.Status{State: w.State}, nil
}

// manager leads no partition.
func manager(t *testing.T) *mirror.Manager {
	t.Helper()
	m, err := mirror.New(mirror.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// here is a cluster whose only coordinator is this broker.
func here(img *meta.Image, s States) *mirror.Cluster {
	return mirror.NewCluster(mirror.ClusterOptions{NodeID: 1, Image: func() *meta.Image { return img }, Local: s, Timeout: time.Second})
}

func image(t *testing.T, stateTopic bool) *meta.Image {
	t.Helper()
	name := "m"
	recs := []meta.Record{
		&meta.TopicRecord{TopicName: "t", TopicID: ids.UUID{15: 9}},
		&meta.PartitionRecord{TopicID: ids.UUID{15: 9}, Replicas: []int32{1}, ISR: []int32{1}, Directories: []ids.UUID{{15: 1}}, Leader: 1},
		&meta.MirrorTopicStateChangeRecord{TopicName: "t", MirrorName: &name, DesiredState: int8(mirrormsg.Mirroring), ChangeOffset: -1},
	}
	if stateTopic {
		recs = append(recs, &meta.TopicRecord{TopicName: mirrorstate.Topic, TopicID: ids.UUID{15: 7}},
			&meta.PartitionRecord{TopicID: ids.UUID{15: 7}, Replicas: []int32{1}, ISR: []int32{1}, Directories: []ids.UUID{{15: 1}}, Leader: 1})
	}
	d := meta.Empty("c").Draft()
	for i, r := range recs {
		if err := d.Apply(int64(i), 1, r); err != nil {
			t.Fatal(err)
		}
	}
	return d.Speculative()
}

// 7.9: the valid states of each request; "If __mirror_state does not exist yet, actual state counts as UNKNOWN and passes"; "states
// could not be collected in time: REQUEST_TIMED_OUT". A partition that is about to become valid is waited for.
func TestCheck(t *testing.T) {
	loading := api.Errorf(api.CoordinatorLoadInProgress, "loading")
	stop := []mirrormsg.State{mirrormsg.Mirroring, mirrormsg.Paused, mirrormsg.Failed}
	for _, c := range []struct {
		name  string
		reads []any
		valid []mirrormsg.State
		topic bool
		want  api.Code
	}{
		{"mirroring", []any{mirrormsg.Mirroring}, stop, true, api.NoError},
		{"failed", []any{mirrormsg.Failed}, stop, true, api.NoError},
		{"stopped", []any{mirrormsg.Stopped}, stop, true, api.InvalidClusterMirrorStates},
		{"truncating, then mirroring", []any{mirrormsg.LogTruncation, mirrormsg.Mirroring}, stop, true, api.NoError},
		{"truncating, then failed", []any{mirrormsg.LogTruncation, mirrormsg.Failed}, stop, true, api.NoError},
		{"truncating for too long", []any{mirrormsg.LogTruncation}, stop, true, api.InvalidClusterMirrorStates},
		{"fencing, then mirroring", []any{mirrormsg.EpochFencing, mirrormsg.Mirroring}, stop, true, api.NoError},
		{"loading, then mirroring", []any{loading, mirrormsg.Mirroring}, stop, true, api.NoError},
		{"loading for too long", []any{loading}, stop, true, api.RequestTimedOut},
		{"stopping, for a start", []any{mirrormsg.Stopping, mirrormsg.Stopped}, []mirrormsg.State{mirrormsg.Stopped, mirrormsg.Unknown}, true, api.NoError},
		{"truncating, for a start", []any{mirrormsg.LogTruncation}, []mirrormsg.State{mirrormsg.Stopped, mirrormsg.Unknown}, true, api.InvalidClusterMirrorStates},
		{"pausing, for a resume", []any{mirrormsg.Pausing, mirrormsg.Paused}, []mirrormsg.State{mirrormsg.Paused}, true, api.NoError},
		{"no state topic", []any{loading}, stop, false, api.NoError},
	} {
		img := image(t, c.topic)
		h := New(Options{Image: func() *meta.Image { return img }, Cluster: here(img, &states{reads: c.reads}), Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithTimeout(t.Context(), 3*settle)
		err := h.check(ctx, "m", []*meta.Topic{img.TopicByName("t")}, c.valid...)
		cancel()
		code := api.NoError
		if err != nil {
			code, _ = api.CodeOf(err)
		}
		if code != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// 4.16: "for each FAILED partition with a recorded previous state writes that previous state with retry attempt 0".
func TestRecover(t *testing.T) {
	img := image(t, true)
	for previous, want := range map[mirrormsg.State]mirrormsg.State{
		mirrormsg.Mirroring: mirrormsg.Mirroring, mirrormsg.EpochFencing: mirrormsg.EpochFencing, mirrormsg.Stopping: mirrormsg.Stopping,
		mirrormsg.LogTruncation: mirrormsg.LogTruncation, mirrormsg.Unknown: mirrormsg.LogTruncation, mirrormsg.Paused: mirrormsg.LogTruncation,
	} {
		s := &states{reads: []any{mirrormsg.Failed}, last: mirrorstate.Status{Previous: previous, StateEpoch: 6, RetryAttempt: -1}}
		h := New(Options{Image: func() *meta.Image { return img }, Cluster: here(img, s), Manager: manager(t), Logger: slog.New(slog.DiscardHandler)})
		if err := h.recoverTopic(t.Context(), "m", "t"); err != nil {
			t.Fatal(err)
		}
		if len(s.wrote) != 1 || s.wrote[0].State != want || s.wrote[0].RetryAttempt != 0 || s.wrote[0].StateEpoch != 6 {
			t.Errorf("from %s: %+v", previous, s.wrote)
		}
	}
	s := &states{reads: []any{mirrormsg.Mirroring}}
	h := New(Options{Image: func() *meta.Image { return img }, Cluster: here(img, s), Logger: slog.New(slog.DiscardHandler)})
	if err := h.recoverTopic(t.Context(), "m", "t"); err != nil || len(s.wrote) != 0 {
		t.Errorf("a partition that has not failed: %v %v", err, s.wrote)
	}
	for topic, want := range map[string]api.Code{"none": api.UnknownTopicOrPartition, "t": api.TopicNotInClusterMirror} {
		if code, _ := api.CodeOf(h.recoverTopic(t.Context(), "other", topic)); code != want {
			t.Errorf("topic %s: %s", topic, code.Name())
		}
	}
}

// 4.10: a filter "may be named without partitions: all partitions of the topic".
func TestWanted(t *testing.T) {
	topic := &meta.Topic{Name: "t", Partitions: make([]*meta.Partition, 3)}
	filter := func(name string, ps ...int32) []mirrormsg.DescribeMirrorTopicFilter {
		return []mirrormsg.DescribeMirrorTopicFilter{{TopicName: name, Partitions: ps}}
	}
	for _, c := range []struct {
		filter []mirrormsg.DescribeMirrorTopicFilter
		want   []int32
		ok     bool
	}{
		{nil, []int32{0, 1, 2}, true},
		{filter("t"), []int32{0, 1, 2}, true},
		{filter("t", 2, 9), []int32{2}, true},
		{filter("x"), nil, false},
		{[]mirrormsg.DescribeMirrorTopicFilter{}, nil, false},
	} {
		if got, ok := wanted(c.filter, topic); ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v %v", c.filter, got, ok)
		}
	}
}

// A broker that lags behind the one that created a mirror waits for it, a moment, and a single broker not at all.
func TestKnownMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draft := image(t, true).Draft()
		apply := func(r meta.Record) *meta.Image {
			t.Helper()
			if err := draft.Apply(9, 1, r); err != nil {
				t.Fatal(err)
			}
			return draft.Speculative()
		}
		apply(&meta.FeatureLevelRecord{Feature: "mirror.version", Level: 1})
		single := apply(&meta.RegisterBrokerRecord{BrokerID: 1})
		pair := apply(&meta.RegisterBrokerRecord{BrokerID: 2})
		value := "h:1"
		created := apply(&meta.ConfigRecord{ResourceType: meta.ResourceClusterMirror, ResourceName: "m", Key: "bootstrap.servers", Value: &value})
		for name, c := range map[string]struct {
			image func(waited time.Duration) *meta.Image
			wait  time.Duration
			want  api.Code
		}{
			"alone":   {func(time.Duration) *meta.Image { return single }, 0, api.UnknownClusterMirror},
			"unknown": {func(time.Duration) *meta.Image { return pair }, behind, api.UnknownClusterMirror},
			"known":   {func(time.Duration) *meta.Image { return created }, 0, api.NoError},
			"late": {func(waited time.Duration) *meta.Image {
				if waited < 300*time.Millisecond {
					return pair
				}
				return created
			}, 300 * time.Millisecond, api.NoError},
		} {
			began := time.Now()
			h := New(Options{Image: func() *meta.Image { return c.image(time.Since(began)) }})
			_, err := h.knownMirror(t.Context(), "m")
			if code, _ := api.CodeOf(err); err != nil && code != c.want || err == nil && c.want != api.NoError || time.Since(began) != c.wait {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
	})
}

// Clients are answered in their numbers of mirror errors (spec 0.2b), and brokers by Milena's.
func TestNumbersOfClients(t *testing.T) {
	err := api.Errorf(api.UnknownClusterMirror, "none")
	for points, want := range map[api.CodePoints]int16{api.Milena: 1137, api.Prototype: 137} {
		h := New(Options{CodePoints: points})
		if code, _ := h.codeAndText(err); code != want {
			t.Errorf("%s: %d", points, code)
		}
		if code, _ := h.codeAndText(api.Errorf(api.RequestTimedOut, "late")); code != int16(api.RequestTimedOut) {
			t.Errorf("%s: %d", points, code)
		}
	}
	if code, _ := codeAndText(err); code != 1137 {
		t.Errorf("between brokers: %d", code)
	}
}

// A request's own timeout bounds it, within reason.
func TestWithin(t *testing.T) {
	for ms, want := range map[int32]time.Duration{1000: time.Second, 0: 30 * time.Second, -5: 30 * time.Second, 1<<31 - 1: 30 * time.Second} {
		ctx, cancel := within(context.Background(), ms)
		at, _ := ctx.Deadline()
		if d := time.Until(at); d > want || d < want-10*time.Second && want > 10*time.Second || d < 0 {
			t.Errorf("%d ms: %s", ms, d)
		}
		cancel()
	}
}
