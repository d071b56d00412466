package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/peertest"
)

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// badFiles damages what is on disk while the broker is down, and fills the disk while it is up.
type badFiles struct {
	*part
	b     *peertest.Broker
	adm   *kadm.Client
	first time.Time // timestamp of the first record
	end   int64     // next offset of the topic
}

const (
	keptTopic   = "kept"
	keptRecords = 4000
	// They only have to look like ids.
	foreignClusterID, foreignDirID = "ZmZmZmZmZmZmZmZmZmZmZg", "aWlpaWlpaWlpaWlpaWlpaQ"
)

// cases leave the broker running, and each begins with a running one.
func (f *badFiles) cases() []step {
	return []step{
		{"second process on the same directory", f.second},
		{"truncated and missing indexes", f.indexes},
		{"missing and empty checkpoints", f.checkpoints},
		{"torn segment tail", f.tornTail},
		{"foreign cluster.id", f.foreign},
		{"newer format of meta.properties", f.newer},
		{"full disk", f.fullDisk},
	}
}

func (f *badFiles) fill(ctx context.Context) (err error) {
	if f.b, err = f.newMilena("files", "", nil); err != nil {
		return err
	}
	f.addBroker(f.b)
	if err := f.b.Start(ctx); err != nil {
		return err
	}
	if f.adm, err = f.admin(f.b.Addr); err != nil {
		return err
	}
	configs := map[string]*string{"segment.bytes": kadm.StringPtr("1048576"), "index.interval.bytes": kadm.StringPtr("1024")}
	if _, err := f.adm.CreateTopic(ctx, 1, 1, configs, keptTopic); err != nil {
		return err
	}
	if _, err := f.adm.CreateTopic(ctx, 1, 1, nil, plainTopic); err != nil {
		return err
	}
	f.first = time.Now().Add(-2 * time.Hour).Truncate(time.Second)
	return f.more(ctx, keptRecords)
}

// more produces n records of 1 KiB, a second apart from the one before, 20 in a batch.
func (f *badFiles) more(ctx context.Context, n int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr), kgo.DefaultProduceTopic(keptTopic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer cl.Close()
	noise := newNoise(uint64(f.end))
	for n > 0 {
		var recs []*kgo.Record
		for range min(n, 20) {
			recs = append(recs, &kgo.Record{Value: noise.bytes(1000), Timestamp: f.first.Add(time.Duration(f.end) * time.Second)})
			f.end++
		}
		n -= len(recs)
		if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
			return err
		}
		if last := recs[len(recs)-1].Offset; last != f.end-1 {
			return fmt.Errorf("the record after %d went to offset %d", f.end-2, last)
		}
	}
	return nil
}

// whole wants all records there, each by its offset and by its time.
func (f *badFiles) whole(ctx context.Context) error {
	ends, err := f.adm.ListEndOffsets(ctx, keptTopic)
	if err != nil {
		return err
	}
	if e, _ := ends.Lookup(keptTopic, 0); e.Offset != f.end {
		return fmt.Errorf("the topic ends at %d, want %d", e.Offset, f.end)
	}
	for _, i := range []int64{0, 1, 777, keptRecords / 2, f.end - 1} {
		at, err := f.adm.ListOffsetsAfterMilli(ctx, f.first.Add(time.Duration(i)*time.Second).UnixMilli(), keptTopic)
		if err != nil {
			return err
		}
		if o, _ := at.Lookup(keptTopic, 0); o.Offset != i {
			return fmt.Errorf("by time, record %d is at offset %d", i, o.Offset)
		}
		if err := f.readFrom(ctx, i, i+1); err != nil {
			return err
		}
	}
	return f.readFrom(ctx, 0, f.end)
}

// readFrom consumes the records of [from, to).
func (f *badFiles) readFrom(ctx context.Context, from, to int64) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{keptTopic: {0: kgo.NewOffset().At(from)}}))
	if err != nil {
		return err
	}
	defer cl.Close()
	for from < to {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		for r := range fs.RecordsAll() {
			if r.Offset != from || !r.Timestamp.Equal(f.first.Add(time.Duration(from)*time.Second)) {
				return fmt.Errorf("offset %d has time %s, want offset %d", r.Offset, r.Timestamp, from)
			}
			if from++; from == to {
				return nil
			}
		}
	}
	return nil
}

// second wants a second process on a directory in use refused, with the pid of the first.
func (f *badFiles) second(ctx context.Context) error {
	other, err := f.newMilena("second", f.b.DataDir, nil)
	if err != nil {
		return err
	}
	f.addBroker(other)
	if err := f.refusesToStart(ctx, other, strconv.Itoa(f.b.Pid()), f.b.DataDir); err != nil {
		return err
	}
	return roundTrip(ctx, f.b.Addr, plainTopic)
}

// refusesToStart wants the process to end by itself with an error that says all of these.
func (f *badFiles) refusesToStart(ctx context.Context, b *peertest.Broker, says ...string) error {
	if err := b.Launch(); err != nil {
		return err
	}
	code, err := b.Ended(ctx, 10*time.Second)
	if err != nil {
		return errors.Join(err, b.Kill())
	}
	if code == 0 {
		return errors.New("it ended with exit code 0")
	}
	text := peertest.TailFile(b.LogFile, 3)
	return wantAll(text, says...)
}

// partitionFiles are the files of the kept partition with this ending, in order.
func (f *badFiles) partitionFiles(ending string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(f.b.PartitionDir(keptTopic, 0), "*"+ending))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no file *%s", ending)
	}
	return found, err
}

func (f *badFiles) indexes(ctx context.Context) error {
	for _, crash := range []bool{false, true} {
		if err := f.down(crash); err != nil {
			return err
		}
		for _, ending := range []string{".index", ".timeindex"} {
			files, err := f.partitionFiles(ending)
			if err != nil {
				return err
			}
			for i, path := range files {
				switch i % 4 {
				case 0: // not a whole number of entries
					st, err := os.Stat(path)
					if err != nil {
						return err
					}
					if err := os.Truncate(path, max(0, st.Size()/2-3)); err != nil {
						return err
					}
				case 1:
					if err := os.Truncate(path, 0); err != nil {
						return err
					}
				case 2:
					if err := os.Remove(path); err != nil {
						return err
					}
				case 3: // entries that make no sense
					if err := os.WriteFile(path, newNoise(1).random(240), 0o600); err != nil {
						return err
					}
				}
			}
		}
		if err := f.up(ctx); err != nil {
			return fmt.Errorf("after a crash %v: %w", crash, err)
		}
	}
	return nil
}

func (f *badFiles) down(crash bool) error {
	if crash {
		return f.b.Kill()
	}
	return f.b.Stop()
}

// up starts the broker, wants everything there, and produces some more.
func (f *badFiles) up(ctx context.Context) error {
	if err := f.b.Start(ctx); err != nil {
		return err
	}
	if err := f.whole(ctx); err != nil {
		return err
	}
	return f.more(ctx, 40)
}

func (f *badFiles) checkpoints(ctx context.Context) error {
	names := []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"}
	for _, crash := range []bool{false, true} {
		for _, how := range []string{"missing", "empty", "garbage"} {
			if err := f.down(crash); err != nil {
				return err
			}
			paths := []string{filepath.Join(f.b.PartitionDir(keptTopic, 0), "leader-epoch-checkpoint")}
			for _, n := range names {
				paths = append(paths, filepath.Join(f.b.DataDir, n))
			}
			for _, path := range paths {
				var err error
				switch how {
				case "missing":
					if err = os.Remove(path); errors.Is(err, os.ErrNotExist) {
						err = nil
					}
				case "empty":
					err = os.WriteFile(path, nil, 0o600)
				case "garbage":
					err = os.WriteFile(path, []byte("0\n7\nthis is no checkpoint\n"), 0o600)
				}
				if err != nil {
					return err
				}
			}
			if err := f.up(ctx); err != nil {
				return fmt.Errorf("%s checkpoints after a crash %v: %w", how, crash, err)
			}
		}
	}
	return nil
}

// tornTail damages the end of the active segment as a crash of the machine may.
func (f *badFiles) tornTail(ctx context.Context) error {
	for _, tear := range []func(path string) (lost int64, err error){
		func(path string) (int64, error) { return 0, appendTo(path, newNoise(9).random(999)) },
		func(path string) (int64, error) { return 0, appendTo(path, make([]byte, 4096)) },
		func(path string) (int64, error) { // the last batch, of 20 records, loses its end
			st, err := os.Stat(path)
			if err != nil {
				return 0, err
			}
			return 20, os.Truncate(path, st.Size()-10)
		},
	} {
		if err := f.b.Kill(); err != nil {
			return err
		}
		files, err := f.partitionFiles(".log")
		if err != nil {
			return err
		}
		lost, err := tear(files[len(files)-1])
		if err != nil {
			return err
		}
		f.end -= lost
		if err := f.up(ctx); err != nil {
			return err
		}
		if _, err := peertest.Inspect(f.b.PartitionDir(keptTopic, 0)); err != nil {
			return err
		}
	}
	return nil
}

func appendTo(path string, b []byte) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(b)
	return err
}

// foreign puts a directory of another cluster beside the broker's own.
func (f *badFiles) foreign(ctx context.Context) error {
	if err := f.b.Stop(); err != nil {
		return err
	}
	stranger := filepath.Join(f.dir, "stranger")
	if err := os.MkdirAll(stranger, 0o755); err != nil {
		return err
	}
	meta := "version=1\ncluster.id=" + foreignClusterID + "\nnode.id=1\ndirectory.id=" + foreignDirID + "\n"
	if err := os.WriteFile(filepath.Join(stranger, "meta.properties"), []byte(meta), 0o600); err != nil {
		return err
	}
	both, err := f.newMilena("both", f.b.DataDir+","+stranger, nil)
	if err != nil {
		return err
	}
	f.addBroker(both)
	if err := f.refusesToStart(ctx, both, "another cluster", foreignClusterID, stranger); err != nil {
		return err
	}
	return f.up(ctx)
}

// newer wants an unknown version of a file refused by name, and nothing harmed.
func (f *badFiles) newer(ctx context.Context) error {
	if err := f.b.Stop(); err != nil {
		return err
	}
	path := filepath.Join(f.b.DataDir, "meta.properties")
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(old), "version=1", "version=9", 1)), 0o600); err != nil {
		return err
	}
	if err := f.refusesToStart(ctx, f.b, "meta.properties", "version", "9"); err != nil {
		return err
	}
	if err := os.WriteFile(path, old, 0o600); err != nil {
		return err
	}
	return f.up(ctx)
}

// diskSize is the size of the file system that the test fills; reserve is what a broker keeps free of it.
const (
	diskSize = 96 << 20
	reserve  = 24 << 20
)

// fullDisk mounts a small file system and fills it beside the broker.
func (f *badFiles) fullDisk(ctx context.Context) error {
	mount := filepath.Join(f.dir, "small-disk")
	if err := os.MkdirAll(mount, 0o755); err != nil {
		return err
	}
	if err := asRoot(ctx, "mount", "-t", "tmpfs", "-o", "size="+strconv.Itoa(diskSize)+",mode=777", "tmpfs", mount); err != nil {
		return fmt.Errorf("this part needs the right to mount a tmpfs: %w", err)
	}
	f.onCleanUp(func() error { return asRoot(context.Background(), "umount", mount) })
	b, err := f.newMilena("on-small-disk", filepath.Join(mount, "data"), map[string]string{"log.dir.reserve.bytes": strconv.Itoa(reserve)})
	if err != nil {
		return err
	}
	f.addBroker(b)
	if err := b.Start(ctx); err != nil {
		return err
	}
	adm, err := f.admin(b.Addr)
	if err != nil {
		return err
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, plainTopic); err != nil {
		return err
	}
	if err := roundTrip(ctx, b.Addr, plainTopic); err != nil {
		return err
	}
	if err := f.fillByWriting(ctx, b, adm); err != nil {
		return fmt.Errorf("filled by a producer: %w", err)
	}
	balloon := filepath.Join(mount, "balloon")
	// First the reserve is touched, then not a byte is left.
	for _, left := range []int64{reserve / 2, 0} {
		if err := f.fullCase(ctx, b, adm, balloon, left); err != nil {
			return fmt.Errorf("with %d bytes left: %w", left, err)
		}
	}
	return b.Stop()
}

// fillByWriting lets a producer fill the disk as fast as it can: it must be refused before the disk is full. Deleting a
// topic makes room, and then it goes on by itself.
func (f *badFiles) fillByWriting(ctx context.Context, b *peertest.Broker, adm *kadm.Client) error {
	const big = "big"
	if _, err := adm.CreateTopic(ctx, 1, 1, map[string]*string{"file.delete.delay.ms": kadm.StringPtr("100"), "segment.bytes": kadm.StringPtr("8388608")}, big); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.DefaultProduceTopic(big), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordRetries(0), kgo.DisableIdempotentWrite())
	if err != nil {
		return err
	}
	defer cl.Close()
	value := newNoise(3).random(900 << 10)
	var written int64
	for err == nil {
		if written > 2*diskSize {
			return errors.New("more was taken than the disk holds")
		}
		err = cl.ProduceSync(ctx, &kgo.Record{Value: value}, &kgo.Record{Value: value}).FirstErr()
		written += 2 * int64(len(value))
	}
	if !errors.Is(err, kerr.KafkaStorageError) {
		return fmt.Errorf("refused after %d bytes: %w, want KAFKA_STORAGE_ERROR", written, err)
	}
	free, err := freeBytes(b.DataDir)
	if err != nil {
		return err
	}
	if free < reserve/4 {
		return fmt.Errorf("refused only when %d bytes were left, of a reserve of %d", free, reserve)
	}
	if err := readsOn(ctx, b.Addr); err != nil {
		return err
	}
	if r, err := adm.DeleteTopics(ctx, big); err != nil || r.Error() != nil {
		return errors.Join(err, r.Error())
	}
	return f.writesAgain(ctx, b)
}

func (f *badFiles) writesAgain(ctx context.Context, b *peertest.Broker) error {
	return peertest.WaitFor(ctx, 20*time.Second, "writes taken again", func(ctx context.Context) error {
		if err := b.Running(); err != nil {
			return err
		}
		return roundTrip(ctx, b.Addr, plainTopic)
	})
}

func (f *badFiles) fullCase(ctx context.Context, b *peertest.Broker, adm *kadm.Client, balloon string, left int64) error {
	if err := inflate(balloon, left); err != nil {
		return err
	}
	// How soon it is noticed is the broker's matter, but a write must be refused with an error that clients retry.
	if err := f.refusesWrites(ctx, b); err != nil {
		return err
	}
	if err := readsOn(ctx, b.Addr); err != nil {
		return err
	}
	if left > 0 {
		if _, err := adm.CreateTopic(ctx, 1, 1, nil, "made-while-full"); err != nil {
			return err
		}
		if r, err := adm.DeleteTopics(ctx, "made-while-full"); err != nil || r.Error() != nil {
			return errors.Join(err, r.Error())
		}
	}
	if err := b.Running(); err != nil {
		return err
	}
	if err := os.Remove(balloon); err != nil {
		return err
	}
	return f.writesAgain(ctx, b)
}

// inflate writes a file until only so many bytes are left on its file system.
func inflate(path string, left int64) error {
	free, err := freeBytes(filepath.Dir(path))
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	chunk := make([]byte, 64<<10)
	for ; free > left; free -= int64(len(chunk)) {
		if _, err := file.Write(chunk[:min(int64(len(chunk)), free-left)]); err != nil {
			if left == 0 {
				return nil
			}
			return err
		}
	}
	return nil
}

// refusesWrites produces until it is refused, and wants the error to be one that clients retry.
func (f *badFiles) refusesWrites(ctx context.Context, b *peertest.Broker) error {
	data, err := batch(0)
	if err != nil {
		return err
	}
	return peertest.WaitFor(ctx, 15*time.Second, "writes refused", func(ctx context.Context) error {
		c, err := dialRaw(ctx, b.Addr)
		if err != nil {
			return err
		}
		defer c.Close()
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = 9, -1, 5000
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: plainTopic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: data}}}}
		resp := kmsg.NewPtrProduceResponse()
		if err := c.call(req, resp); err != nil {
			return err
		}
		p := resp.Topics[0].Partitions[0]
		answer := kerr.ErrorForCode(p.ErrorCode)
		if answer == nil {
			return errors.New("a write was taken")
		}
		if !kerr.IsRetriable(answer) {
			return fmt.Errorf("answered %w, which clients don't retry", answer)
		}
		if p.ErrorMessage == nil || !strings.Contains(*p.ErrorMessage, "log.dir.reserve.bytes") {
			return fmt.Errorf("answered %w without a message that names log.dir.reserve.bytes", answer)
		}
		return nil
	})
}

func readsOn(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{plainTopic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer cl.Close()
	fs := cl.PollFetches(ctx)
	if err := fs.Err(); err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if fs.NumRecords() == 0 {
		return errors.New("nothing to read")
	}
	return nil
}

// asRoot runs a program that needs root, through sudo if we aren't.
func asRoot(ctx context.Context, name string, args ...string) error {
	if os.Geteuid() != 0 {
		sudo, err := exec.LookPath("sudo")
		if err != nil {
			return fmt.Errorf("%s needs root: %w", name, err)
		}
		name, args = sudo, append([]string{"-n", name}, args...)
	}
	_, err := peertest.Run(ctx, peertest.Command{Path: name, Args: args, Timeout: 20 * time.Second})
	return err
}
