package inventory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// TestWithoutABudget: questions that have no budget for single reads cost one read each as soon as answers are out of date.
func TestWithoutABudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(20)
		for id := range c.objects {
			c.omitted[id] = true
		}
		c.pageSize = 1000
		i := newInventory(c)
		for range 24 {
			for id := range 20 {
				_, err := i.Get(t.Context(), id+1, Query{MaxAge: 10 * time.Second, Expected: 20})
				require.NoError(t, err)
			}
			time.Sleep(5 * time.Second)
		}
		t.Logf("20 objects, 2 minutes: %v listings and single reads", c.counts())
		assert.Greater(t, c.counts()[1], 68)
	})
}

// TestObjectsThatListingsLack: single reads in place of listings that lack everything stay within their budget, and absence is proved as
// ever.
func TestObjectsThatListingsLack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const objects, span, price = 20, 2 * time.Minute, 2500 * time.Millisecond
		c := newCloud(objects)
		for id := range c.objects {
			c.omitted[id] = true
		}
		c.pageSize = 1000
		i := newInventory(c)
		q := Query{MaxAge: 10 * time.Second, Expected: objects, PerSingle: price}
		for began := time.Now(); time.Since(began) < span; time.Sleep(5 * time.Second) {
			for id := range objects {
				_, err := i.Get(t.Context(), id+1, q)
				require.NoError(t, err)
			}
		}
		t.Logf("%d objects, %s: %v listings and single reads", objects, span, c.counts())
		assert.LessOrEqual(t, c.counts()[1], objects+int(span/price))

		// A demand for an answer of now, as before a deletion, is met whatever is remembered.
		c.remove(1)
		now := q
		now.NotBefore, now.Absence = time.Now(), evidence.Absence{OwnRead: true}
		_, err := i.Get(t.Context(), 1, now)
		require.ErrorIs(t, err, cloudapi.ErrNotFound)

		// Absence shows when the answer has become too old, by a read of the object.
		c.remove(2)
		reads := c.counts()[1]
		time.Sleep(time.Minute)
		_, err = i.Get(t.Context(), 2, q.listedSince(2*time.Second))
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
		assert.Equal(t, reads+1, c.counts()[1])

		// What listings have again is as old as they are.
		clear(c.omitted)
		time.Sleep(maxOmittedAge)
		for id := 3; id <= objects; id++ {
			_, err = i.Get(t.Context(), id, q)
			require.NoError(t, err)
		}
		c.remove(3)
		time.Sleep(q.MaxAge + time.Second)
		_, err = i.Get(t.Context(), 3, q)
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
	})
}
