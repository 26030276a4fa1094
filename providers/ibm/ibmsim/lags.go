package ibmsim

import (
	"slices"
	"time"
)

// lags configures how far responses lag behind the actual state, and which changes happen between two responses.
type lags struct {
	// status is how long a load balancer shows the status active after a write.
	status time.Duration
	// targets is how long a security group still shows a detached load balancer.
	targets  time.Duration
	releases []release
	// drop is deleted after the first page of a listing; endTokens ends all tokens there.
	drop      string
	endTokens bool
}

// release is a load balancer that a security group still shows.
type release struct {
	group string
	lb    *LoadBalancer
	until time.Time
}

// SetStatusLag makes load balancers show the status active for a while after each write, although they already refuse the next one.
func (s *Sim) SetStatusLag(lag time.Duration) { s.mu.Do(func() { s.lags.status = lag }) }

// SetTargetLag makes security groups show load balancers for a while after they were detached, or have gone; such a group cannot be
// deleted.
func (s *Sim) SetTargetLag(lag time.Duration) { s.mu.Do(func() { s.lags.targets = lag }) }

// DropAfterPage deletes a load balancer by hand as soon as the first page of the next listing of several pages is answered.
func (s *Sim) DropAfterPage(name string) { s.mu.Do(func() { s.lags.drop = name }) }

// EndTokensAfterPage ends all tokens as soon as the first page of the next listing of several pages is answered.
func (s *Sim) EndTokensAfterPage() { s.mu.Do(func() { s.lags.endTokens = true }) }

// afterPage runs after a page that is not the last.
func (s *Sim) afterPage(key string) {
	if s.lags.endTokens {
		s.lags.endTokens, s.tokens = false, map[string]time.Time{}
	}
	if name := s.lags.drop; name != "" && key == "load_balancers" {
		s.lags.drop = ""
		s.loadBalancers = slices.DeleteFunc(slices.Clone(s.loadBalancers), func(lb *LoadBalancer) bool { return lb.Name == name })
	}
}

// shownStatus is the status that documents show.
func (s *Sim) shownStatus(lb *LoadBalancer) string {
	status := lb.provisioning()
	if status == "update_pending" && lb.Provisioning == "" && time.Now().Before(lb.began.Add(s.lags.status)) {
		return "active"
	}
	return status
}

// release makes groups still show a detached load balancer.
func (s *Sim) release(lb *LoadBalancer, groups ...string) {
	if s.lags.targets == 0 {
		return
	}
	for _, id := range groups {
		s.lags.releases = append(s.lags.releases, release{id, lb, time.Now().Add(s.lags.targets)})
	}
}

// stillShown are the load balancers that a group still shows.
func (s *Sim) stillShown(g SecurityGroup) (list []*LoadBalancer) {
	for _, one := range s.lags.releases {
		attached := slices.Contains(s.loadBalancers, one.lb) && slices.Contains(one.lb.Groups, g.ID)
		if one.group == g.ID && time.Now().Before(one.until) && !attached {
			list = append(list, one.lb)
		}
	}
	return list
}

// moment is a state that listings show from a point in time on.
type moment struct {
	at        time.Time
	balancers []*LoadBalancer
	groups    []SecurityGroup
}

// SetListingLag makes listings of load balancers and security groups show the state of so long ago. Individual reads show the present
// state.
func (s *Sim) SetListingLag(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag, s.past = lag, nil
	s.recordMoment()
}

// recordMoment keeps the present state for later listings.
func (s *Sim) recordMoment() {
	if s.lag == 0 {
		return
	}
	m := moment{at: time.Now(), groups: slices.Clone(s.groups)}
	for _, lb := range s.loadBalancers {
		one := *lb
		one.Pools, one.Listeners = slices.Clone(lb.Pools), slices.Clone(lb.Listeners)
		m.balancers = append(m.balancers, &one)
	}
	s.past = append(s.past, m)
}

// listedMoment returns the state that listings show at present.
func (s *Sim) listedMoment() moment {
	shown := moment{balancers: s.loadBalancers, groups: s.groups}
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
