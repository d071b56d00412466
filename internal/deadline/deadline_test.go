package deadline_test

import (
	"testing"
	"testing/synctest"
	"time"

	"milena/internal/deadline"
)

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Rule: who waits learns that the deadline has come, or that it is another one now.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadline.Deadline
		past, moved := d.Watch()
		if past != nil || closed(moved) {
			t.Fatal("there is a deadline before one is set")
		}
		d.Set(time.Now().Add(time.Second))
		if !closed(moved) {
			t.Error("a waiter doesn't learn that a deadline was set")
		}
		past, moved = d.Watch()
		d.Set(time.Now().Add(time.Minute))
		if !closed(moved) {
			t.Error("a waiter doesn't learn that the deadline was moved")
		}
		time.Sleep(2 * time.Second)
		if closed(past) {
			t.Error("a deadline that was moved has come")
		}
		past, _ = d.Watch()
		time.Sleep(time.Minute)
		if !closed(past) {
			t.Error("the deadline has not come")
		}
		d.Set(time.Now().Add(-time.Second))
		if past, _ = d.Watch(); !closed(past) {
			t.Error("a deadline of the past has not come")
		}
		d.Set(time.Time{})
		if past, _ = d.Watch(); past != nil {
			t.Error("a removed deadline is still there")
		}
	})
}
