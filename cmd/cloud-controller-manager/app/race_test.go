//go:build race

package app

// raceDetector: the tests run with the race detector.
const raceDetector = true
