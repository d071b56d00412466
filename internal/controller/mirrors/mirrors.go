// Package mirrors holds the controller's commands for Cluster Mirroring (KIP-1279; spec 4.3 to 4.8, 6.1, 6.2, 7.9): they check
// what is wished, never what is; the broker that received a request has checked the actual states before.
//
// A mirror exists if and only if its config resource has an entry. A topic's wish is one MirrorTopicStateChangeRecord;
// whatever a request changes is one atomic batch.
package mirrors

import (
	"slices"
	"strings"
	"time"

	"milena/internal/api"
	"milena/internal/config"
	"milena/internal/controller"
	"milena/internal/ids"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// maxPartitions bounds the partitions of one topic that a request creates: what asks for more is no topic but an attack.
const maxPartitions = 100_000

// StateTopic is the internal topic of partition states.
const StateTopic = "__mirror_state"

// Feature is the feature that has to be at level 1 or above for mirrors to work.
const Feature = "mirror.version"

// Commands make the controller's commands.
type Commands struct {
	// StatePartitions and StateFactor are mirror.state.topic.num.partitions and mirror.state.topic.replication.factor.
	StatePartitions int32
	StateFactor     int16
}

// Result answers a command: an error of the request as a whole, and one per topic.
type Result struct {
	Err    *api.Error
	Topics []TopicResult
}

// TopicResult is what became of one topic of a request.
type TopicResult struct {
	Name string
	Err  *api.Error
	// Note is said of a success, empty if there is nothing to say.
	Note string
}

func refuse(code api.Code, format string, args ...any) machine.Result {
	return machine.Result{Reply: Result{Err: api.Errorf(code, format, args...)}}
}

// check is what all commands ask first: the feature level, and that the mirror exists.
func check(img *meta.Image, name string) *api.Error {
	if err := checkFeature(img); err != nil {
		return err
	}
	if len(img.Config(meta.ResourceClusterMirror, name)) == 0 {
		return api.Errorf(api.UnknownClusterMirror, "there is no mirror %s", name)
	}
	return nil
}

func checkFeature(img *meta.Image) *api.Error {
	if img.Feature(Feature) < 1 {
		return api.Errorf(api.UnsupportedVersion, "mirroring is off: raise the feature %s to level 1", Feature)
	}
	return nil
}

// ValidName checks a mirror's name (spec 6.9).
func ValidName(name string) *api.Error {
	bad := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}
	if name == "" || name == "." || name == ".." || len(name) > 249 || strings.ContainsFunc(name, bad) {
		return api.Errorf(api.InvalidRequest, "mirror name %q is not 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'", name)
	}
	return nil
}

// Create makes a mirror of the configs in the request (spec 4.3), and __mirror_state with the first.
func (c Commands) Create(req *mirrormsg.CreateClusterMirrorRequest) controller.Command {
	return func(st *controller.State, _ time.Time) machine.Result {
		img := st.Image()
		name := req.MirrorName
		if err := checkFeature(img); err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		if err := ValidName(name); err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		if len(img.Config(meta.ResourceClusterMirror, name)) > 0 {
			return refuse(api.ClusterMirrorAlreadyExists, "mirror %s exists already", name)
		}
		all, names := map[string]string{}, map[string]string{}
		var recs []meta.Record
		for _, kv := range req.Config {
			if kv.Value == nil {
				continue
			}
			key := config.Canonical(meta.ResourceClusterMirror, kv.Name)
			switch given, twice := names[key]; {
			case twice && given == kv.Name:
				return refuse(api.InvalidRequest, "config %s is given twice", kv.Name)
			case twice:
				return refuse(api.InvalidConfig, "configs %s and %s are one and the same: give one of them", given, kv.Name)
			}
			names[key] = kv.Name
			if err := st.Validate(meta.ResourceClusterMirror, name, key, *kv.Value); err != nil {
				code, msg := api.CodeOf(err)
				if code == api.UnknownServerError {
					code = api.InvalidConfig
				}
				return refuse(code, "%s", msg)
			}
			all[key] = *kv.Value
			recs = append(recs, &meta.ConfigRecord{ResourceType: meta.ResourceClusterMirror, ResourceName: name, Key: key, Value: kv.Value})
		}
		for _, key := range []string{"bootstrap.servers", "mirror.source.cluster.id"} {
			if all[key] == "" {
				return refuse(api.InvalidRequest, "config %s is missing", key)
			}
		}
		if err := config.ValidateAll(meta.ResourceClusterMirror, name, all); err != nil {
			code, msg := api.CodeOf(err)
			return refuse(code, "%s", msg)
		}
		state, err := c.stateTopic(st)
		if err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		return st.Result(Result{}, append(recs, state...)...)
	}
}

// stateTopic are the records that create __mirror_state, none if it exists. Its records are flushed before they count (spec D2); its
// replicas are at most the brokers there are (spec D15). The error is that it can't be created now, as while no broker is active: what
// needs it is refused then, since nothing would create it later, and no mirror has an owner without it.
func (c Commands) stateTopic(st *controller.State) ([]meta.Record, *api.Error) {
	img := st.Image()
	if img.TopicByName(StateTopic) != nil {
		return nil, nil
	}
	brokers := int16(0)
	for range img.Brokers() {
		brokers++
	}
	value := func(s string) *string { return &s }
	recs, res := st.PlanTopic(controller.NewTopic{
		Name: StateTopic, Partitions: c.StatePartitions, ReplicationFactor: max(min(c.StateFactor, brokers), 1),
		Configs: map[string]*string{"cleanup.policy": value("compact"), "compression.type": value("producer"), "retention.ms": value("-1"), "flush.messages": value("1")},
	}, maxPartitions)
	if res.Err != nil {
		return nil, api.Errorf(api.CoordinatorNotAvailable, "topic %s can't be created now: %v; try again", StateTopic, res.Err)
	}
	return recs, nil
}

// fence is the optimistic lock of spec 7.9: a topic whose wish changed after the receiving broker looked is refused.
func fence(t *meta.Topic, mirror string, stateOffset int64) *api.Error {
	if stateOffset != -1 && t != nil && t.MirrorName == mirror && t.MirrorChangeOffset > stateOffset {
		return api.Errorf(api.InvalidClusterMirrorStates, "the wish for topic %s changed while the request was on its way: look again and repeat it", t.Name)
	}
	return nil
}

// wish is the record of a wish; it counts as made at the offset it gets.
func wish(name, mirror string, s mirrormsg.State) meta.Record {
	return &meta.MirrorTopicStateChangeRecord{TopicName: name, MirrorName: &mirror, DesiredState: int8(s), ChangeOffset: -1}
}

// Start wishes topics to be mirrored, creating those that don't exist (spec 4.4).
func (c Commands) Start(req *mirrormsg.StartMirrorTopicsRequest) controller.Command {
	return func(st *controller.State, _ time.Time) machine.Result {
		img := st.Image()
		if err := check(img, req.MirrorName); err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		for _, t := range req.Topics {
			if err := fence(img.TopicByName(t.TopicName), req.MirrorName, req.StateOffset); err != nil {
				return machine.Result{Reply: Result{Err: err}}
			}
		}
		edit, err := startPatterns(img, req, func(string) bool { return true })
		if err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		recs, res := c.startAll(st, req, edit)
		failed := map[string]bool{}
		for _, t := range res.Topics {
			if t.Err != nil {
				failed[t.Name] = true
			}
		}
		if len(failed) > 0 {
			// A topic that can't be started must not be found by its name at every refresh.
			if edit, err = startPatterns(img, req, func(name string) bool { return !failed[name] }); err != nil {
				return machine.Result{Reply: Result{Err: err}}
			}
		}
		state, err := c.stateTopic(st)
		if err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		recs = slices.Concat(state, edit.records(), stopExcluded(img, req.MirrorName, edit.excluded), recs)
		return st.Result(res, recs...)
	}
}

// startPatterns are a mirror's patterns after a start of those of its topics that take part.
func startPatterns(img *meta.Image, req *mirrormsg.StartMirrorTopicsRequest, part func(topic string) bool) (*patternEdit, *api.Error) {
	edit := editPatterns(img, req.MirrorName)
	for _, p := range req.IncludePatterns {
		edit.include(p)
	}
	for _, t := range req.Topics {
		if part(t.TopicName) {
			edit.includeTopic(t.TopicName)
		}
	}
	for _, p := range req.ExcludePatterns {
		edit.exclude(p)
	}
	return edit, edit.compile()
}

// startAll starts each topic that can be.
func (c Commands) startAll(st *controller.State, req *mirrormsg.StartMirrorTopicsRequest, edit *patternEdit) ([]meta.Record, Result) {
	var res Result
	var recs []meta.Record
	names, taken := map[string]bool{}, map[ids.UUID]string{}
	for _, t := range req.Topics {
		var add []meta.Record
		var err *api.Error
		switch other, twice := taken[t.TopicID]; {
		case names[t.TopicName]:
			err = api.Errorf(api.InvalidRequest, "topic %s is in the request more than once", t.TopicName)
		case twice && !t.TopicID.IsZero():
			err = api.Errorf(api.TopicAlreadyExists, "the request gives topics %s and %s the same id %s", other, t.TopicName, t.TopicID)
		default:
			add, err = c.start(st, req.MirrorName, t, edit)
		}
		names[t.TopicName], taken[t.TopicID] = true, t.TopicName
		r := TopicResult{Name: t.TopicName, Err: err}
		if err == nil && len(add) == 0 && st.Image().TopicByName(t.TopicName) == nil {
			r.Note = "the source has no such topic, or could not be asked: the topic is started when it is found there"
		}
		res.Topics = append(res.Topics, r)
		if err != nil && res.Err == nil {
			res.Err = err // simple clients look at the top level only
		}
		recs = append(recs, add...)
	}
	return recs, res
}

// stopExcluded wishes the mirror's topics to be stopped that the exclude patterns match now.
func stopExcluded(img *meta.Image, mirror string, exc config.Patterns) []meta.Record {
	var recs []meta.Record
	for t := range img.Topics() {
		if t.MirrorName == mirror && mirrormsg.State(t.MirrorDesired) != mirrormsg.Stopped && exc.Match(t.Name) {
			recs = append(recs, wish(t.Name, mirror, mirrormsg.Stopped))
		}
	}
	return recs
}

func (c Commands) start(st *controller.State, mirror string, t mirrormsg.StartMirrorTopic, edit *patternEdit) ([]meta.Record, *api.Error) {
	img := st.Image()
	switch {
	case slices.Contains([]string{StateTopic, "__consumer_offsets", "__transaction_state", "__share_group_state", meta.TopicName}, t.TopicName):
		return nil, api.Errorf(api.InvalidRequest, "topic %s is internal: each cluster has its own", t.TopicName)
	case edit.excluded.Match(t.TopicName):
		return nil, api.Errorf(api.InvalidRequest, "topic %s is excluded from mirror %s by %s in mirror.topics.exclude: take that out (milena mirrors configs %s --set mirror.topics.exclude=…)",
			t.TopicName, mirror, edit.excluding(t.TopicName), mirror)
	case !edit.included.Match(t.TopicName):
		return nil, api.Errorf(api.InvalidRequest, "topic %s does not match mirror.topics.include of mirror %s", t.TopicName, mirror)
	}
	own := img.TopicByName(t.TopicName)
	if other := topicWithID(img, t.TopicID); other != nil && other.Name != t.TopicName {
		return nil, api.Errorf(api.TopicAlreadyExists, "the source topic's id %s belongs to topic %s here", t.TopicID, other.Name)
	}
	if own == nil {
		if t.NumPartitions <= 0 {
			if err := controller.CheckTopicName(t.TopicName); err != nil {
				return nil, err
			}
			return nil, nil // the refresh creates it when the source has it
		}
		recs, res := st.PlanTopic(controller.NewTopic{Name: t.TopicName, ID: t.TopicID, Partitions: t.NumPartitions, ReplicationFactor: -1, ActiveOnly: true}, maxPartitions)
		if res.Err != nil {
			return nil, res.Err
		}
		return append(recs, wish(t.TopicName, mirror, mirrormsg.Mirroring)), nil
	}
	state := mirrormsg.State(own.MirrorDesired)
	switch {
	case !t.TopicID.IsZero() && own.ID != t.TopicID:
		return nil, api.Errorf(api.TopicAlreadyExists, "topic %s exists here with id %s, on the source it has %s: delete it here, or mirror it under its own id", own.Name, own.ID, t.TopicID)
	case own.MirrorName != "" && own.MirrorName != mirror && state != mirrormsg.Stopped:
		return nil, api.Errorf(api.TopicAlreadyInClusterMirror, "topic %s is in mirror %s: stop it there first", own.Name, own.MirrorName)
	case own.MirrorName == mirror && state == mirrormsg.Mirroring:
		return nil, nil
	case own.MirrorName == mirror && state == mirrormsg.Paused:
		return nil, api.Errorf(api.InvalidClusterMirrorStates, "topic %s is paused: resume it", own.Name)
	}
	return []meta.Record{wish(own.Name, mirror, mirrormsg.Mirroring)}, nil
}

func topicWithID(img *meta.Image, id ids.UUID) *meta.Topic {
	if id.IsZero() {
		return nil
	}
	return img.TopicByID(id)
}

// Stop wishes topics to be stopped and takes patterns out of discovery (spec 4.5).
func (c Commands) Stop(req *mirrormsg.StopMirrorTopicsRequest) controller.Command {
	return func(st *controller.State, _ time.Time) machine.Result {
		img := st.Image()
		if err := check(img, req.MirrorName); err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		names := make([]string, len(req.Topics))
		for i, t := range req.Topics {
			names[i] = t.TopicName
		}
		res, recs, err := change(img, req.MirrorName, names, req.StateOffset, mirrormsg.Stopped, func(mirrormsg.State) bool { return true })
		if err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		edit := editPatterns(img, req.MirrorName)
		withdrawn := edit.withdraw(img, res.Topics)
		for _, p := range req.Patterns {
			edit.exclude(p)
		}
		if len(req.Patterns) > 0 || withdrawn {
			if err := edit.compile(); err != nil {
				return machine.Result{Reply: Result{Err: err}}
			}
			recs = append(edit.records(), recs...)
		}
		return st.Result(res, recs...)
	}
}

// Pause wishes topics to be paused (spec 4.6).
func (c Commands) Pause(req *mirrormsg.PauseMirrorTopicsRequest) controller.Command {
	names := make([]string, len(req.Topics))
	for i, t := range req.Topics {
		names[i] = t.TopicName
	}
	return toggle(req.MirrorName, names, req.StateOffset, mirrormsg.Paused, mirrormsg.Mirroring)
}

// Resume wishes paused topics to be mirrored again (spec 4.7).
func (c Commands) Resume(req *mirrormsg.ResumeMirrorTopicsRequest) controller.Command {
	names := make([]string, len(req.Topics))
	for i, t := range req.Topics {
		names[i] = t.TopicName
	}
	return toggle(req.MirrorName, names, req.StateOffset, mirrormsg.Mirroring, mirrormsg.Paused)
}

func toggle(mirror string, names []string, stateOffset int64, to, from mirrormsg.State) controller.Command {
	return func(st *controller.State, _ time.Time) machine.Result {
		img := st.Image()
		if err := check(img, mirror); err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		res, recs, err := change(img, mirror, names, stateOffset, to, func(s mirrormsg.State) bool { return s == from })
		if err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		return st.Result(res, recs...)
	}
}

// change wishes the topics to be in a state, each that may; one that is wished so already succeeds without a record.
func change(img *meta.Image, mirror string, names []string, stateOffset int64, to mirrormsg.State, may func(mirrormsg.State) bool) (Result, []meta.Record, *api.Error) {
	var res Result
	var recs []meta.Record
	for _, n := range names {
		if err := fence(img.TopicByName(n), mirror, stateOffset); err != nil {
			return Result{}, nil, err
		}
	}
	for i, n := range names {
		t := img.TopicByName(n)
		var err *api.Error
		switch {
		case slices.Contains(names[:i], n):
			err = api.Errorf(api.InvalidRequest, "topic %s is in the request more than once", n)
		case t == nil:
			err = api.Errorf(api.UnknownTopicOrPartition, "there is no topic %s", n)
		case t.MirrorName == "":
			err = api.Errorf(api.UnknownClusterMirror, "topic %s is in no mirror", n)
		case t.MirrorName != mirror:
			err = api.Errorf(api.TopicNotInClusterMirror, "topic %s is in mirror %s, not in %s", n, t.MirrorName, mirror)
		case mirrormsg.State(t.MirrorDesired) == to:
		case !may(mirrormsg.State(t.MirrorDesired)):
			err = api.Errorf(api.InvalidClusterMirrorStates, "topic %s is wished to be %s and can't be changed to %s", n, mirrormsg.State(t.MirrorDesired), to)
		default:
			recs = append(recs, wish(n, mirror, to))
		}
		res.Topics = append(res.Topics, TopicResult{Name: n, Err: err})
	}
	return res, recs, nil
}

// Delete removes a mirror whose topics are all stopped (spec 4.8): every config and every topic's membership, in one
// batch.
func (c Commands) Delete(req *mirrormsg.DeleteClusterMirrorRequest) controller.Command {
	return func(st *controller.State, _ time.Time) machine.Result {
		img := st.Image()
		if err := check(img, req.MirrorName); err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		var recs []meta.Record
		for t := range img.Topics() {
			if t.MirrorName != req.MirrorName {
				continue
			}
			if s := mirrormsg.State(t.MirrorDesired); s != mirrormsg.Stopped {
				return refuse(api.InvalidClusterMirrorStates, "topic %s of mirror %s is wished to be %s: stop it first", t.Name, req.MirrorName, s)
			}
			if err := fence(t, req.MirrorName, req.StateOffset); err != nil {
				return machine.Result{Reply: Result{Err: err}}
			}
			recs = append(recs, &meta.MirrorTopicStateChangeRecord{TopicName: t.Name, DesiredState: int8(mirrormsg.Unknown), ChangeOffset: -1})
		}
		own := img.Config(meta.ResourceClusterMirror, req.MirrorName)
		keys := make([]string, 0, len(own))
		for k := range own {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			recs = append(recs, &meta.ConfigRecord{ResourceType: meta.ResourceClusterMirror, ResourceName: req.MirrorName, Key: k})
		}
		return st.Result(Result{}, recs...)
	}
}
