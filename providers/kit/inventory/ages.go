package inventory

import (
	"math"
	"time"
)

// MaxAgeWithinBudget returns the maximum age of answers with which reading everything repeatedly stays within a share of the cloud's rate
// limit: one call every perCall. It is at least minAge and at most maxAge.
func (i *view[ID]) MaxAgeWithinBudget(perCall, minAge, maxAge time.Duration) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return min(max(time.Duration(i.pages)*perCall, minAge), maxAge)
}

// MinAge returns the age below which a newer answer is not worth a read, at least a second: a new listing would begin before the last one
// has been used. Without listings each object costs a read of its own, which is never worth it.
func (i *view[ID]) MinAge() time.Duration {
	if i.source.List == nil {
		return math.MaxInt64
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return max(time.Second, 2*i.listTook)
}
