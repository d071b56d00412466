package mirrors

import (
	"slices"
	"time"

	"milena/internal/controller"
	"milena/internal/machine"
	"milena/internal/meta"
	"milena/internal/mirrormsg"
)

// What a mirror's owner asks for by itself it has decided by lists that may have changed since: only what the lists want now is done.

// StartFound is Start for topics that were found at the source by patterns: those that the patterns still match and that no mirror has.
func (c Commands) StartFound(req *mirrormsg.StartMirrorTopicsRequest) controller.Command {
	return byLists(req.MirrorName, func(img *meta.Image, lists *patternEdit) controller.Command {
		left := *req
		left.Topics = slices.DeleteFunc(slices.Clone(req.Topics), func(t mirrormsg.StartMirrorTopic) bool {
			return !lists.included.Match(t.TopicName) || lists.excluded.Match(t.TopicName) || inMirror(img, t.TopicName)
		})
		return c.Start(&left)
	})
}

// StopExcluded is Stop for topics that the exclude patterns match: those that they still match.
func (c Commands) StopExcluded(req *mirrormsg.StopMirrorTopicsRequest) controller.Command {
	return byLists(req.MirrorName, func(_ *meta.Image, lists *patternEdit) controller.Command {
		left := *req
		left.Topics = slices.DeleteFunc(slices.Clone(req.Topics), func(t mirrormsg.StopMirrorTopic) bool { return !lists.excluded.Match(t.TopicName) })
		return c.Stop(&left)
	})
}

// byLists is the command that the lists of a mirror lead to when it is run.
func byLists(mirror string, command func(img *meta.Image, lists *patternEdit) controller.Command) controller.Command {
	return func(st *controller.State, now time.Time) machine.Result {
		img := st.Image()
		if err := check(img, mirror); err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		lists := editPatterns(img, mirror)
		if err := lists.compile(); err != nil {
			return machine.Result{Reply: Result{Err: err}}
		}
		return command(img, lists)(st, now)
	}
}

func inMirror(img *meta.Image, topic string) bool {
	t := img.TopicByName(topic)
	return t != nil && t.MirrorName != ""
}
