package waiting

import (
	"sync"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// maxTogether bounds the concurrent work of one caller.
const maxTogether = 4

// Together runs independent pieces of work concurrently, such as reads, a few at a time, and waits for all of them. It returns the error of
// the first, in their order, that failed.
func Together(work ...func() error) error {
	for _, err := range EachTogether(work...) {
		if err != nil {
			return err
		}
	}
	return nil
}

// EachTogether is Together with the error of each piece of work in its place.
func EachTogether(work ...func() error) []error {
	var group sync.WaitGroup
	room := make(chan struct{}, maxTogether)
	failures := make([]error, len(work))
	for i, do := range work {
		room <- struct{}{}
		group.Add(1)
		rescue.Go("work for a waiting caller", func() {
			defer group.Done()
			defer func() { <-room }()
			failures[i] = safely(do)
		})
	}
	group.Wait()
	return failures
}

func safely(do func() error) (err error) {
	defer rescue.Into(&err, "work for a waiting caller")
	return do()
}
