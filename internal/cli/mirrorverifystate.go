package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"milena/mirroradm"
)

// span are the offsets from the first to before the second.
type span [2]int64

// verifyState is what runs of verify have proven, as the file keeps it.
type verifyState struct {
	Mirror string  `json:"mirror"`
	Sample float64 `json:"sample"`
	Seed   uint64  `json:"seed"`
	// Equal are the offsets that were compared (with a sample: those of which some were), by topic id (by name where there are none) and
	// partition: apart, in order.
	Equal map[string][]span `json:"equal"`
	// Last are the last batches that were equal: a log that was cut since and has grown again has another one there. Compacted ones have none.
	Last map[string]mirroradm.VerifyBatch `json:"last"`

	path  string
	saved time.Time
	// from and at are where this run began with a range, and how far it has come; known are those that were proven as a whole before.
	from, at map[string]int64
	known    map[string]bool
	// spared is how many offsets of this run's ranges were proven before.
	spared int64
	err    error
}

// load reads the file of an earlier run, if there is one, whose sample goes on.
func (v *mirrorVerify) load(cmd *cobra.Command, mirror string, sample float64) (*verifyState, error) {
	s := &verifyState{
		Mirror: mirror, Sample: sample, Seed: v.seed, Equal: map[string][]span{}, Last: map[string]mirroradm.VerifyBatch{}, path: v.resume, saved: time.Now(),
		from: map[string]int64{}, at: map[string]int64{}, known: map[string]bool{},
	}
	if s.Seed == 0 {
		s.Seed = uint64(time.Now().UnixNano())
	}
	if v.resume == "" {
		return s, nil
	}
	b, err := os.ReadFile(v.resume)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	var old struct {
		verifyState
		Proven map[string]int64 `json:"proven"`
	}
	if err == nil {
		err = json.Unmarshal(b, &old)
	}
	switch {
	case err != nil:
		return nil, usagef("--progress %s: %w", v.resume, err)
	case old.Mirror != mirror:
		return nil, usagef("--progress %s is of mirror %s", v.resume, old.Mirror)
	case old.Proven != nil:
		return nil, usagef("--progress %s is of an earlier release, which did not keep where a comparison began: remove it", v.resume)
	case cmd.Flags().Changed("sample") && old.Sample != sample, v.seed != 0 && v.seed != old.Seed:
		return nil, usagef("--progress %s is of a run with --sample %g --seed %d", v.resume, old.Sample, old.Seed)
	}
	s.Sample, s.Seed = old.Sample, old.Seed
	if old.Equal != nil {
		s.Equal = old.Equal
	}
	if old.Last != nil {
		s.Last = old.Last
	}
	return s, nil
}

func rangeKey(r *mirroradm.VerifyRange) string {
	if r.DestinationID == [16]byte{} {
		return fmt.Sprintf("%s-%d", r.Topic, r.Partition)
	}
	return fmt.Sprintf("%s:%s-%d", kafkaID(r.DestinationID), r.Topic, r.Partition)
}

// begin leaves out of a range what is proven from its first offset on. A log that ends before what was proven, or holds another batch than
// the last that was compared, was cut since: nothing of it counts any more.
func (s *verifyState) begin(r *mirroradm.VerifyRange, holds func(mirroradm.VerifyBatch) bool) {
	k := rangeKey(r)
	if l := s.Equal[k]; r.Nothing == "" && len(l) > 0 && (l[len(l)-1][1] > r.To || !r.Compacted && (s.Last[k].Length == 0 || !holds(s.Last[k]))) {
		delete(s.Equal, k)
		delete(s.Last, k)
	}
	for _, x := range s.Equal[k] {
		if x[0] <= r.From && r.From < x[1] {
			s.spared += x[1] - r.From
			r.From = x[1]
			s.known[k] = r.From == r.To
		}
	}
	s.from[k], s.at[k] = r.From, r.From
}

// note keeps how far a range has come and returns by how much that is more. In the midst of a compacted range nothing is
// proven yet: whether compaction may have removed a record is told by later ones. Nor is anything by a sample that has none of it.
func (s *verifyState) note(r *mirroradm.VerifyResult) int64 {
	k := rangeKey(&r.Range)
	more := r.Proven - s.at[k]
	s.at[k] = r.Proven
	whole := r.Equal() && r.Proven == r.To
	if r.Difference == nil && (!r.Compacted || whole) && (s.Sample == 1 || r.Read > 0) {
		s.add(k, span{s.from[k], r.Proven})
		if !r.Compacted && r.Last.Length > 0 && r.Last.Base >= s.Last[k].Base {
			s.Last[k] = r.Last
		}
	}
	return max(more, 0)
}

// add adds offsets to those of a partition that are proven.
func (s *verifyState) add(k string, x span) {
	if x[0] >= x[1] {
		return
	}
	var out []span
	for _, y := range s.Equal[k] {
		if y[1] < x[0] || x[1] < y[0] {
			out = append(out, y)
			continue
		}
		x = span{min(x[0], y[0]), max(x[1], y[1])}
	}
	out = append(out, x)
	slices.SortFunc(out, func(a, b span) int { return int(min(max(a[0]-b[0], -1), 1)) })
	s.Equal[k] = out
}

func (s *verifyState) saveSometimes() {
	if time.Since(s.saved) >= time.Second && s.err == nil {
		s.err = s.save()
	}
}

// save replaces the file.
func (s *verifyState) save() error {
	if s.path == "" || s.err != nil {
		return s.err
	}
	s.saved = time.Now()
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".*")
	if err != nil {
		return fmt.Errorf("--progress: %w", err)
	}
	_, err = tmp.Write(b)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("--progress: %w", err)
	}
	return os.Rename(tmp.Name(), s.path)
}
