package guard

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// hold is why a Node whose instance the cloud calls gone is kept.
type hold string

const (
	holdNone hold = ""
	// holdYoung and holdUnconfirmed end by themselves within seconds.
	holdYoung       hold = "young"
	holdUnconfirmed hold = "unconfirmed"
	// The others last until something changes, and are reported.
	holdShare   hold = "share"
	holdAll     hold = "all"
	holdAccount hold = "account"
	holdDryRun  hold = "dry-run"
)

// lasting reports whether somebody should know.
func (h hold) lasting() bool { return h != holdNone && h != holdYoung && h != holdUnconfirmed }

// deletions decides whether a Node may be deleted. It knows nothing of clouds: only answers, and when they came.
type deletions struct {
	policy Policy
	// count returns the number of our Nodes in the cluster.
	count func() int
	// account makes a cheap authenticated call.
	account func(context.Context) error

	mu sync.Mutex
	// suspects are Nodes whose instance was called gone and was not seen since, by UID.
	suspects map[string]suspect
	// known are Nodes that were asked about, by UID, with the time of the last answer; it stands in for count before the
	// informers have synced.
	known map[string]time.Time
	// alive is when an instance of the cluster was last seen.
	alive time.Time
	swept time.Time
}

type suspect struct {
	first, last time.Time
	answers     int
}

func newDeletions(p Policy, count func() int, account func(context.Context) error) *deletions {
	return &deletions{policy: p, count: count, account: account, suspects: map[string]suspect{}, known: map[string]time.Time{}}
}

func key(node *v1.Node) string {
	if node.UID != "" {
		return string(node.UID)
	}
	return node.Name
}

// seen records that an instance exists. Whatever was said of it before is void.
func (d *deletions) seen(node *v1.Node) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.suspects, key(node))
	d.known[key(node)], d.alive = now, now
	d.sweepLocked(now)
}

// gone records that the cloud called an instance gone, and decides. The message says what was seen and what to do.
func (d *deletions) gone(ctx context.Context, node *v1.Node) (hold, string) {
	now := time.Now()
	d.mu.Lock()
	s, known := d.suspects[key(node)]
	if !known {
		s.first = now
	}
	s.last, s.answers = now, s.answers+1
	d.suspects[key(node)], d.known[key(node)] = s, now
	d.sweepLocked(now)
	suspects, total, alive := len(d.suspects), max(d.count(), len(d.known)), d.alive
	d.mu.Unlock()

	p := d.policy
	limit := max(p.Floor, int(math.Ceil(p.MaxShare*float64(total))))
	switch {
	case now.Sub(node.CreationTimestamp.Time) < p.GracePeriod:
		return holdYoung, fmt.Sprintf("the Node is younger than %s (--node-deletion-grace-period)", p.GracePeriod)
	case s.answers < p.Confirmations || s.last.Sub(s.first) < p.ConfirmationTime:
		return holdUnconfirmed, fmt.Sprintf("the cloud has said so %d times in %s; %d times in %s are needed", s.answers, s.last.Sub(s.first).Round(time.Second), p.Confirmations, p.ConfirmationTime)
	case p.MaxShare < 1 && total > 1 && suspects >= total:
		return holdAll, fmt.Sprintf("the instances of all %d Nodes are gone at once, as they are when the credential belongs to another account; check it. "+
			"Nodes are deleted again when one instance is seen; delete them by hand, or set --node-deletion-max-share=1, if all are really gone", total)
	case p.MaxShare < 1 && suspects > limit:
		return holdShare, fmt.Sprintf("the instances of %d of %d Nodes vanished within %s, more than the %d that are allowed; check the cloud account and the credential. "+
			"Raise --node-deletion-max-share or delete the Nodes by hand if they are really gone", suspects, total, p.Window, limit)
	case now.Sub(alive) > p.Window:
		if err := d.account(ctx); err != nil {
			return holdAccount, fmt.Sprintf("no instance of the cluster was seen within %s, and the account cannot be read: %v", p.Window, err)
		}
	}
	if p.DryRun {
		return holdDryRun, "the Node would be deleted now; --node-deletion-dry-run keeps it"
	}
	return holdNone, ""
}

// sweepLocked forgets what is older than the window. Nodes that were deleted stay suspects for that long, so that a
// slow loss of a cluster is noticed too.
func (d *deletions) sweepLocked(now time.Time) {
	if now.Sub(d.swept) < time.Second {
		return
	}
	d.swept = now
	for k, s := range d.suspects {
		if now.Sub(s.last) > d.policy.Window {
			delete(d.suspects, k)
		}
	}
	for k, at := range d.known {
		if now.Sub(at) > d.policy.Window {
			delete(d.known, k)
		}
	}
}
