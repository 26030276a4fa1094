package nodes

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	invalid := &cloudapi.Error{Class: cloudapi.ErrInvalid, Message: "malformed"}
	badID := func(c *description, _ *source) {
		c.Absent, c.BadID = "the cloud knows no machine %d", func(err error) bool { return errors.Is(err, cloudapi.ErrInvalid) }
	}
	for name, c := range map[string]struct {
		node   *v1.Node
		change change
		read   error
		why    string
		err    error
	}{
		"its own":               {node: node("web", "fake://1")},
		"another's":             {node: node("db", "fake://1"), why: "the machine is named web"},
		"nobody's":              {node: node("web", "fake://9"), why: "machine 9 does not exist"},
		"nobody's, in words":    {node: node("web", "fake://9"), change: badID, why: "the cloud knows no machine 9"},
		"malformed":             {node: node("web", "fake://x"), why: `provider ID "fake://x"`},
		"without an ID":         {node: node("web", ""), why: "is malformed"},
		"refused as bad":        {node: node("web", "fake://1"), change: badID, read: invalid, why: "the cloud knows no machine 1"},
		"a failed read":         {node: node("web", "fake://1"), change: badID, read: failure, err: failure},
		"an invalid read":       {node: node("web", "fake://1"), read: invalid, err: invalid},
		"of a cloud without it": {node: node("web", "fake://1"), change: func(c *description, _ *source) { c.Verify = nil }, why: "cannot be verified"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(func(d *description, s *source) {
				s.List = nil
				if c.change != nil {
					c.change(d, s)
				}
			}, web)
			f.cloud.readErr = c.read
			ok, why, err := f.VerifyInstance(t.Context(), c.node)
			assert.Equal(t, c.why == "" && c.err == nil, ok)
			require.ErrorIs(t, err, c.err)
			if c.why != "" {
				assert.Contains(t, why, c.why)
			} else {
				assert.Empty(t, why)
			}
		})
	}
}

// TestVerifyName: the name of an instance is the node's, or the first label of it.
func TestVerifyName(t *testing.T) {
	t.Parallel()
	for name, verified := range map[string]bool{"web.example.com": true, "WEB": true, "web": true, "db": false, "example.com": false, "": false} {
		why := VerifyName(node("web.example.com", ""), "machine 1", name)
		assert.Equal(t, verified, why == "", name)
		if !verified {
			assert.Contains(t, why, "the machine 1 is named", name)
		}
	}
}

// TestRefusalIsFresh: who has corrected an instance need not wait for as long as a good verdict serves.
func TestRefusalIsFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(nil, web, off)
		require.NoError(t, f.CheckAPI(t.Context()))
		f.cloud.mu.Lock()
		f.cloud.machines[1] = machine{id: 1, name: "renamed"}
		f.cloud.mu.Unlock()
		time.Sleep(2 * time.Minute)
		ok, _, err := f.VerifyInstance(t.Context(), node("web", "fake://1"))
		require.NoError(t, err)
		assert.True(t, ok, "a verdict may rest on a read of the last minutes")
		assert.Equal(t, 1, f.cloud.lists+f.cloud.reads)
		ok, _, err = f.VerifyInstance(t.Context(), node("renamed", "fake://1"))
		require.NoError(t, err)
		assert.True(t, ok, "a refusal may not")
		assert.Equal(t, 2, f.cloud.lists+f.cloud.reads)
	})
}
