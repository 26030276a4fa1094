package cloudapi

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// changingList is a list that changes while its pages are read.
type changingList struct {
	mu      sync.Mutex
	objects []int
	reads   []int
	// before is called before a page is read, with how many were read before it.
	before func(l *changingList, number, reads int)
}

type numberedPage struct {
	objects     []int
	total, last int
}

const testPageSize = 3

func (l *changingList) read(_ context.Context, number int) (numberedPage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.before != nil {
		l.before(l, number, len(l.reads))
	}
	l.reads = append(l.reads, number)
	last := max((len(l.objects)+testPageSize-1)/testPageSize, 1)
	if number > last {
		return numberedPage{}, &Error{Class: ErrNotFound}
	}
	from := (number - 1) * testPageSize
	part := slices.Clone(l.objects[from:min(from+testPageSize, len(l.objects))])
	return numberedPage{part, len(l.objects), last}, nil
}

func (l *changingList) list(t *testing.T) ([]int, error) {
	t.Helper()
	pages, err := Numbered[numberedPage]{
		What: "things", Read: l.read,
		Objects: func(p numberedPage) int { return len(p.objects) }, Total: func(p numberedPage) int { return p.total },
		Last: func(p numberedPage, _ int) int { return p.last },
	}.List(t.Context())
	all := []int{}
	for _, p := range pages {
		all = append(all, p.objects...)
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// TestListsThatChange: what is there before and after a list was read is among what was read, wherever objects came and went.
func TestListsThatChange(t *testing.T) {
	t.Parallel()
	stay := []int{10, 20, 30, 40, 50, 60, 70, 80, 90, 100}
	requireAll := func(l *changingList, all []int) {
		t.Helper()
		for _, one := range stay {
			require.Contains(t, all, one, "%v", l.reads)
		}
	}

	l := &changingList{objects: slices.Clone(stay)}
	all, err := l.list(t)
	require.NoError(t, err)
	assert.Equal(t, stay, all)
	assert.Len(t, l.reads, 4, "a list that stays is read once")

	l = &changingList{objects: slices.Clone(stay), before: func(l *changingList, number, _ int) {
		if number > 1 {
			l.objects = slices.Insert(l.objects, 1, number) // objects move on to later pages, of which some were read
		}
	}}
	all, err = l.list(t)
	require.NoError(t, err)
	requireAll(l, all)
	again := l.reads[1+slices.Index(l.reads[1:], 1):]
	assert.Greater(t, len(again), 4)
	assert.True(t, slices.IsSorted(again), "one after the other: %v", again)

	l = &changingList{objects: slices.Clone(stay), before: func(l *changingList, number, reads int) {
		if number == 2 && reads < 7 {
			l.objects = slices.Delete(l.objects, 0, 1)
		}
	}}
	l.objects = slices.Insert(l.objects, 0, 1, 2)
	all, err = l.list(t)
	require.NoError(t, err)
	assert.Equal(t, stay, all)

	l = &changingList{before: func(l *changingList, number, _ int) {
		if number > 1 {
			l.objects = l.objects[testPageSize:] // also the last page goes
		}
	}}
	for i := range 1000 {
		l.objects = append(l.objects, i)
	}
	_, err = l.list(t)
	require.ErrorIs(t, err, ErrTransient)
	require.ErrorContains(t, err, "listing things: temporary failure: objects were removed each time")

	l = &changingList{objects: slices.Clone(stay), before: func(l *changingList, number, reads int) {
		if number == 4 && reads < 4 {
			l.objects = l.objects[:8]
		}
	}}
	all, err = l.list(t)
	require.NoError(t, err, "a page that is not there any more is no object that is not found")
	assert.Equal(t, stay[:8], all)
}

// TestListsThatAreGone: what is listed is not there at all.
func TestListsThatAreGone(t *testing.T) {
	t.Parallel()
	_, err := Numbered[numberedPage]{What: "things", Read: func(context.Context, int) (numberedPage, error) {
		return numberedPage{}, &Error{Class: ErrNotFound}
	}}.List(t.Context())
	require.ErrorIs(t, err, ErrNotFound)
}
