package nodes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// tagCalls is a cloud that reads tags by calls of their own.
type tagCalls struct {
	asked [][]int
	tags  map[int]map[string]string
	err   error
}

func (c *tagCalls) read(_ context.Context, ids []int) (map[int]map[string]string, error) {
	c.asked = append(c.asked, ids)
	return c.tags, c.err
}

// TestTagsByACallOfTheirOwn: one call is for the instances of all nodes, and there is none if nobody asks. While it fails an initialised
// Node is told nothing and a new one waits, at one call in a while, unless its own tags were read.
func TestTagsByACallOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := &tagCalls{tags: map[int]map[string]string{1: {"team": "shop"}}}
		f := newFixture(func(c *description, _ *source) { c.AllTags = calls.read }, web, off)
		ask := func(n *v1.Node) (map[string]string, error) {
			var told map[string]string
			_, err := f.InstanceMetadata(contract.WithTags(t.Context(), &told), n)
			return told, err
		}
		_, err := f.InstanceMetadata(t.Context(), node("web", "fake://1"))
		require.NoError(t, err)
		assert.Empty(t, calls.asked, "nobody asked for tags")

		for _, n := range []*v1.Node{node("web", "fake://1"), node("web", "fake://1", uninitialized)} {
			told, err := ask(n)
			require.NoError(t, err)
			assert.Equal(t, calls.tags[1], told)
		}
		assert.Equal(t, [][]int{{1}}, calls.asked)

		calls.tags[2] = map[string]string{}
		f.view.SetLister(lister(node("web", "fake://1")))
		for _, n := range []*v1.Node{node("off", "fake://2", uninitialized), node("off", "fake://2"), node("web", "fake://1")} {
			told, err := ask(n)
			require.NoError(t, err)
			assert.Equal(t, n.Name == "off", len(told) == 0)
		}
		assert.Equal(t, [][]int{{1}, {1, 2}}, calls.asked, "a new instance is read at once, and one without tags is not read again")

		time.Sleep(SweepMaxAge)
		calls.tags = map[int]map[string]string{1: calls.tags[1]}
		calls.err = &cloudapi.Error{Class: cloudapi.ErrNotFound, Message: "no such service"}
		for range 10 {
			told, err := ask(node("off", "fake://2"))
			require.NoError(t, err)
			assert.Nil(t, told)
			_, err = ask(node("off", "fake://2", uninitialized))
			require.ErrorContains(t, err, "no such service")
			assert.NotErrorIs(t, err, cloudapi.ErrNotFound, "the instance is there")
		}
		told, err := ask(node("web", "fake://1", uninitialized))
		require.NoError(t, err, "its own tags were read")
		assert.Equal(t, calls.tags[1], told)
		assert.Len(t, calls.asked, 3, "an outage costs no call for each node")
	})
}

// TestTagsOfAnswerThatLacksOne: an answer that does not name an instance says nothing about its tags, and a new Node waits, at one call in
// a while.
func TestTagsOfAnswerThatLacksOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := &tagCalls{tags: map[int]map[string]string{1: {"team": "shop"}}}
		f := newFixture(func(c *description, _ *source) { c.AllTags = calls.read }, web, off)
		ask := func(n *v1.Node) (told map[string]string, err error) {
			_, err = f.InstanceMetadata(contract.WithTags(t.Context(), &told), n)
			return told, err
		}
		for range 9 {
			_, err := ask(node("off", "fake://2", uninitialized))
			require.EqualError(t, err, "node off: the answer about tags lacks machine 2", "a new Node waits")
			told, err := ask(node("off", "fake://2"))
			require.NoError(t, err)
			assert.Nil(t, told)
		}
		assert.Len(t, calls.asked, 1)
		calls.tags[2] = map[string]string{"team": "bank"}
		time.Sleep(MissMaxAge)
		told, err := ask(node("off", "fake://2", uninitialized))
		require.NoError(t, err)
		assert.Equal(t, calls.tags[2], told)
	})
}
