//go:build !race

package app

// raceDetector is set where the tests run with the race detector.
const raceDetector = false
