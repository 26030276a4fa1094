package inventory

import (
	"math"
	"time"
)

// MaxAgeWithinBudget returns how old answers may be so that reading everything over and over stays within a share of the cloud's
// rate limit: one call every perCall, but no younger than minAge and no older than maxAge.
func (i *view[ID]) MaxAgeWithinBudget(perCall, minAge, maxAge time.Duration) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return min(max(time.Duration(i.pages)*perCall, minAge), maxAge)
}

// MinAge returns the age below which answers are not worth asking for, at least a second: a listing would begin before the one before has
// served. Where objects are not listed, each costs a read of its own, and no age is worth it.
func (i *view[ID]) MinAge() time.Duration {
	if i.source.List == nil {
		return math.MaxInt64
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return max(time.Second, 2*i.listTook)
}
