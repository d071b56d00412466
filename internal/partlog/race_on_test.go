//go:build race

package partlog

const raceDetector = true
