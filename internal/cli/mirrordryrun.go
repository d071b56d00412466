package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"milena/mirroradm"
)

// slowBuffer is a send buffer below which the line to the source is worth a word: at 100 ms round trip it allows 10 MB/s.
const slowBuffer = 1 << 20

type surveyTopicJSON struct {
	Topic      string   `json:"topic"`
	Partitions int      `json:"partitions"`
	Configs    []string `json:"configs"`
	NotCarried []string `json:"configs_not_carried"`
	Refused    string   `json:"refused,omitempty"`
	Held       int64    `json:"records_here,omitempty"`
	Weaker     []string `json:"weaker"`
}

type surveyGroupJSON struct {
	Group   string `json:"group"`
	Skipped string `json:"skipped,omitempty"`
}

type surveyBrokerJSON struct {
	ID         int32  `json:"id"`
	Addr       string `json:"address"`
	Error      string `json:"error,omitempty"`
	SendBuffer int64  `json:"socket_send_buffer_bytes,omitempty"`
}

// dryRun looks at what a mirror would do. It fails if something that the mirror matches would not come over.
func (a *app) dryRun(cmd *cobra.Command, name string, props map[string]string) error {
	dst, err := a.connect(cmd, mirroradm.Software())
	if err != nil {
		return err
	}
	defer dst.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(a.timeout)*time.Millisecond)
	defer cancel()
	src, err := openSource(ctx, props)
	if err != nil {
		return err
	}
	defer src.Close()
	s, err := mirroradm.SurveySource(ctx, src, dst, name, props)
	if err = a.noMirroring(err); err != nil {
		return err
	}
	bad := obstacles(s)
	for _, t := range s.Topics {
		if t.Refused != "" {
			bad = append(bad, fmt.Sprintf("topic %s would not come over: %s", t.Name, t.Refused))
		}
	}
	if a.json {
		err = a.surveyJSON(name, s)
	} else {
		a.printSurvey(name, s)
	}
	if len(bad) > 0 {
		return errors.Join(err, errors.New(strings.Join(bad, "; ")))
	}
	return err
}

// obstacles are the problems that keep the mirror from working.
func obstacles(s *mirroradm.Survey) []string {
	return slices.DeleteFunc(slices.Clone(s.Problems), func(p string) bool { return strings.HasPrefix(p, "the source has no topic ids") })
}

func (a *app) surveyJSON(name string, s *mirroradm.Survey) error {
	list := func(l []string) []string { return append([]string{}, l...) }
	topics, groups, brokers := []surveyTopicJSON{}, []surveyGroupJSON{}, []surveyBrokerJSON{}
	for _, t := range s.Topics {
		topics = append(topics, surveyTopicJSON{t.Name, t.Partitions, list(t.Configs), list(t.NotCarried), t.Refused, t.Held, list(t.Weaker)})
	}
	for _, g := range s.Groups {
		groups = append(groups, surveyGroupJSON{g.Name, g.Skipped})
	}
	for _, b := range s.Brokers {
		x := surveyBrokerJSON{ID: b.ID, Addr: b.Addr, SendBuffer: b.SendBuffer}
		if b.Err != nil {
			x.Error = oneLine(b.Err.Error())
		}
		brokers = append(brokers, x)
	}
	return a.printJSON(map[string]any{"mirror": name, "source_cluster_id": s.ClusterID, "source_version": s.Version, "source_mirrors": s.Mirroring,
		"brokers": brokers, "topics": topics, "groups": groups, "problems": list(s.Problems)})
}

func (a *app) printSurvey(name string, s *mirroradm.Survey) {
	a.printf("Mirror %s is not created: this is a dry run, seen from here. Every broker of the destination has to reach the source as well.\n", name)
	a.printf("Source: cluster %s, %d brokers, its APIs are those of Kafka %s or later\n", s.ClusterID, len(s.Brokers), s.Version)
	for _, b := range s.Brokers {
		switch {
		case b.Err != nil:
			a.printf("  broker %d at %s: %s\n", b.ID, b.Addr, oneLine(b.Err.Error()))
		case b.SendBuffer > 0 && b.SendBuffer < slowBuffer:
			a.printf("  broker %d at %s: reached; its socket.send.buffer.bytes of %d allows a connection %.1f MB/s at 100 ms round trip\n", b.ID, b.Addr, b.SendBuffer,
				float64(b.SendBuffer)*10/1e6)
		default:
			a.printf("  broker %d at %s: reached\n", b.ID, b.Addr)
		}
	}
	if !s.Mirroring {
		a.printf("  it has no Cluster Mirroring: it can't copy this cluster back\n")
	}
	t, partitions := table{header: []string{"TOPIC", "PARTITIONS", "CONFIGS", "NOT-CARRIED", "COMES-OVER"}}, 0
	for _, x := range s.Topics {
		comes := "yes"
		if x.Refused != "" {
			comes = "no"
		} else {
			partitions += x.Partitions
		}
		t.add(x.Name, x.Partitions, dash(strings.Join(x.Configs, ",")), dash(strings.Join(x.NotCarried, ",")), comes)
	}
	if len(s.Topics) == 0 {
		a.printf("No topic of the source matches.\n")
	} else {
		a.printf("%s", t.String())
	}
	for _, x := range s.Topics {
		if x.Refused != "" {
			a.printf("Topic %s would not come over: %s\n", x.Name, x.Refused)
		}
		if x.Held > 0 && x.Refused == "" {
			a.printf("Topic %s is here with %d records: those that the source doesn't share are set aside and cut\n", x.Name, x.Held)
		}
		if len(x.Weaker) > 0 {
			a.printf("Topic %s would be weaker than on the source: %s\n", x.Name, strings.Join(x.Weaker, "; "))
		}
	}
	var groups []string
	for _, g := range s.Groups {
		if g.Skipped == "" {
			groups = append(groups, g.Name)
		} else {
			a.printf("Group %s would be left out: %s\n", g.Name, g.Skipped)
		}
	}
	a.printf("Groups whose offsets come over: %s\n", dash(strings.Join(groups, ", ")))
	a.printf("ACLs, quotas and share groups don't come over in this release.\n")
	for _, p := range s.Problems {
		a.printf("Problem: %s\n", p)
	}
	if len(obstacles(s)) > 0 {
		a.printf("Nothing would be mirrored before the problems are solved, then %d partitions.\n", partitions)
		return
	}
	a.printf("%d partitions would be mirrored.\n", partitions)
}
