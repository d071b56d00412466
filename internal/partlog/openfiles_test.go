package partlog

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"milena/internal/api"
	"milena/internal/disk"
)

func TestTooManyOpenFilesIsNotADiskFailure(t *testing.T) {
	var short atomic.Bool
	fs := disk.Faulty(testFS(t), func(op disk.Op, _ string) error {
		if short.Load() && (op == disk.OpOpen || op == disk.OpCreate || op == disk.OpSyncDir) {
			return syscall.EMFILE
		}
		return nil
	})
	l := openLog(t, fs, small(), func(o *Options) { o.OnError = func(err error) { t.Errorf("the directory was given up: %v", err) } })
	acked, refused := int64(0), 0
	for i := range 60 { // over several segments
		short.Store(i%2 == 1)
		for _, s := range l.view.Load().segs {
			for _, f := range s.files() {
				f.drop()
			}
		}
		info, err := l.Append(values(t, nowMs(), "v"), AppendOptions{})
		switch {
		case err == nil:
			acked = info.LastOffset + 1
		case short.Load():
			refused++
		default:
			t.Fatalf("append %d: %v", i, err)
		}
		if code, _ := api.CodeOf(l.Flush(-1)); code != api.NoError && code != api.KafkaStorageError {
			t.Fatalf("flush: %v", code)
		}
		_, _ = l.RetentionPass(time.Now())
	}
	short.Store(false)
	if refused == 0 || acked < 20 || l.EndOffset() != acked || l.Failed() != nil {
		t.Fatalf("%d acknowledged, %d refused, end %d, failed %v", acked, refused, l.EndOffset(), l.Failed())
	}
	must(t, l.Close(false))
	l = openLog(t, fs, small(), rp(l.RecoveryPoint()))
	defer func() { must(t, l.Close(false)) }()
	if l.EndOffset() != acked {
		t.Fatalf("end %d after recovery, %d were acknowledged", l.EndOffset(), acked)
	}
}
