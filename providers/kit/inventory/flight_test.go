package inventory

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hanging returns an inventory of a cloud that answers no call which begins before an end, and others after took.
func hanging(end time.Time, patience, took time.Duration) (*fakeCloud, *Inventory[int, object]) {
	c := newCloud(3)
	c.latency = took
	hang := func(ctx context.Context) {
		if time.Now().Before(end) {
			<-ctx.Done()
		}
	}
	return c, New(Source[int, object]{
		Kind: "thing", ID: func(o object) int { return o.id }, Patience: patience,
		List:    func(ctx context.Context) ([]object, int, error) { hang(ctx); return c.list(ctx) },
		Get:     func(ctx context.Context, id int) (object, error) { hang(ctx); return c.get(ctx, id) },
		Indexes: map[string]func(object) []string{"name": func(o object) []string { return []string{o.name} }},
	})
}

// TestReadsThatHang: a question is answered soon after the cloud answers again, whatever was begun before, and by whomever.
func TestReadsThatHang(t *testing.T) {
	t.Parallel()
	questions := map[string]func(context.Context, *Inventory[int, object]) error{
		"an object": func(ctx context.Context, i *Inventory[int, object]) error {
			_, err := i.Get(ctx, 1, Query{})
			return err
		},
		"an object among many": func(ctx context.Context, i *Inventory[int, object]) error {
			_, err := i.Get(ctx, 1, Query{Expected: 100})
			return err
		},
		"a name": func(ctx context.Context, i *Inventory[int, object]) error {
			_, err := i.Find(ctx, "name", "n1", Query{})
			return err
		},
		"all":    func(ctx context.Context, i *Inventory[int, object]) error { _, err := i.All(ctx, Query{}); return err },
		"a look": func(ctx context.Context, i *Inventory[int, object]) error { return i.Look(ctx, []int{1})[1].Err },
	}
	for name, ask := range questions {
		for _, began := range []int{0, 4, 11, 17, 29} {
			t.Run(fmt.Sprintf("%s, %d s after it began", name, began), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					end := time.Now().Add(30 * time.Second)
					c, i := hanging(end, 5*time.Second, 100*time.Millisecond)
					time.Sleep(time.Duration(began) * time.Second)
					before := make(chan error, 1)
					go func() { before <- ask(t.Context(), i) }()
					time.Sleep(500 * time.Millisecond)
					require.NoError(t, ask(t.Context(), i))
					assert.LessOrEqual(t, time.Since(end), 11*time.Second)
					require.NoError(t, <-before)
					time.Sleep(2 * readTimeout) // those that hang end, and spoil nothing
					require.NoError(t, ask(t.Context(), i))
					counts := c.counts()
					assert.LessOrEqual(t, counts[0]+counts[1], 12, "and few of them are begun")
				})
			})
		}
	}
}

// TestSlowReadsAreNoHangs: where reads take long they are waited for, and one that was given up is taken when it comes.
func TestSlowReadsAreNoHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, i := hanging(time.Now(), 5*time.Second, 8*time.Second)
		began := time.Now()
		_, err := i.All(t.Context(), Query{})
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(began), 10*time.Second)
		time.Sleep(time.Minute)
		before := c.counts()[0]
		_, err = i.All(t.Context(), Query{})
		require.NoError(t, err)
		assert.Equal(t, before+1, c.counts()[0])
	})
}

// TestSilenceEnds: a question is not asked for ever.
func TestSilenceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, i := hanging(began.Add(time.Hour), 5*time.Second, time.Second)
		_, err := i.All(t.Context(), Query{})
		require.Error(t, err)
		assert.LessOrEqual(t, time.Since(began), readTimeout+10*time.Second)
		_, err = i.Get(t.Context(), 1, Query{})
		require.Error(t, err)
		time.Sleep(2 * readTimeout)
	})
}
