package data

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
	"milena/internal/partlog"
	"milena/internal/server"
)

// DescribeLogDirs: API 35, versions 1 to 5.
//
// Behaviour: every log directory with the partitions asked for (all, if the
// list is null) that it holds. An offline directory has KAFKA_STORAGE_ERROR
// and no partitions.
//
// Version notes: 2 flexible, 3 an error of the whole, 4 total and usable
// bytes (KIP-827), 5 cordoned directories (KIP-1066; none here).
func (h *Handlers) DescribeLogDirs(_ context.Context, r *server.Request) {
	var req kmsg.DescribeLogDirsRequest
	if !h.decode(r, &req) {
		return
	}
	wanted := func(string, int32) bool { return true }
	if req.Topics != nil {
		set := map[string]map[int32]bool{}
		for _, t := range req.Topics {
			if set[t.Topic] == nil {
				set[t.Topic] = map[int32]bool{}
			}
			for _, p := range t.Partitions {
				set[t.Topic][p] = true
			}
		}
		wanted = func(topic string, p int32) bool { return set[topic][p] }
	}
	byDir, current := map[string][]described{}, map[tp]*partlog.Log{}
	add := func(l *partlog.Log, future bool) {
		if wanted(l.Topic(), l.Partition()) {
			dir := filepath.Dir(l.Dir())
			byDir[dir] = append(byDir[dir], described{l, future, current[tp{l.Topic(), l.Partition()}]})
		}
	}
	h.o.Dirs.Logs(func(l *partlog.Log) bool {
		current[tp{l.Topic(), l.Partition()}] = l
		add(l, false)
		return true
	})
	h.o.Dirs.Futures(func(l *partlog.Log) bool {
		add(l, true)
		return true
	})
	resp := kmsg.DescribeLogDirsResponse{Version: r.Version}
	for _, d := range h.o.Dirs.Dirs() {
		out := kmsg.DescribeLogDirsResponseDir{Dir: d.Path, TotalBytes: d.Total, UsableBytes: d.Free}
		if !d.Online {
			out.ErrorCode, out.TotalBytes, out.UsableBytes = int16(api.KafkaStorageError), -1, -1
		} else {
			out.Topics = h.logsOf(byDir[filepath.Clean(d.Path)])
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	reply(r, &resp, api.NoError)
}

type tp struct {
	topic     string
	partition int32
}

// described is a log, or one that is to replace current.
type described struct {
	*partlog.Log
	future  bool
	current *partlog.Log
}

// lag is how far a log is behind: a future one behind the log it is to
// replace, another behind the high watermark.
func (h *Handlers) lag(l described) int64 {
	if l.future {
		if l.current == nil {
			return -1
		}
		return max(0, l.current.EndOffset()-l.EndOffset())
	}
	p, err := h.o.Replicas.Get(l.Topic(), l.Partition())
	if err != nil {
		return 0
	}
	return max(0, p.HighWatermark()-l.EndOffset())
}

// logsOf describes logs, by topic and partition.
func (h *Handlers) logsOf(logs []described) []kmsg.DescribeLogDirsResponseDirTopic {
	slices.SortFunc(logs, func(a, b described) int {
		return cmp.Or(cmp.Compare(a.Topic(), b.Topic()), cmp.Compare(a.Partition(), b.Partition()))
	})
	var out []kmsg.DescribeLogDirsResponseDirTopic
	for _, l := range logs {
		if len(out) == 0 || out[len(out)-1].Topic != l.Topic() {
			out = append(out, kmsg.DescribeLogDirsResponseDirTopic{Topic: l.Topic()})
		}
		t := &out[len(out)-1]
		t.Partitions = append(t.Partitions, kmsg.DescribeLogDirsResponseDirTopicPartition{
			Partition: l.Partition(), Size: l.Size(), OffsetLag: h.lag(l), IsFuture: l.future,
		})
	}
	return out
}
