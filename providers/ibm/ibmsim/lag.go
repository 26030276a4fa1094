package ibmsim

import (
	"slices"
	"time"
)

// moment is a state that listings show from a point in time on.
type moment struct {
	at        time.Time
	balancers []*LoadBalancer
	groups    []SecurityGroup
}

// SetListingLag makes listings of load balancers and security groups show what was there so long ago; reads of single ones show what there
// is. 0 makes listings show it as well.
func (s *Sim) SetListingLag(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag, s.past = lag, nil
	s.remember()
}

// remember notes what is there now, where listings lag.
func (s *Sim) remember() {
	if s.lag == 0 {
		return
	}
	m := moment{at: time.Now(), groups: slices.Clone(s.groups)}
	for _, lb := range s.balancers {
		one := *lb
		one.Pools, one.Listeners = slices.Clone(lb.Pools), slices.Clone(lb.Listeners)
		m.balancers = append(m.balancers, &one)
	}
	s.past = append(s.past, m)
}

// listedMoment returns the state that listings show at present.
func (s *Sim) listedMoment() moment {
	shown := moment{balancers: s.balancers, groups: s.groups}
	if s.lag == 0 {
		return shown
	}
	until := time.Now().Add(-s.lag)
	for n, m := range s.past {
		if n == 0 || !m.at.After(until) {
			shown = m
		}
	}
	return shown
}
