package ibmsim

import (
	"slices"
	"time"
)

// behind configures how far responses lag behind the actual state, and which changes happen between two responses.
type behind struct {
	// status and targets are how long after a write a load balancer still shows that nothing is done, and how long a security group
	// still shows a load balancer that was taken from it.
	status, targets time.Duration
	releases        []release
	// drop is the load balancer that goes after the first page of a listing; endTokens ends all tokens there.
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
func (s *Sim) SetStatusLag(lag time.Duration) { s.mu.Do(func() { s.behind.status = lag }) }

// SetTargetLag makes security groups show load balancers for a while after they were detached, or have gone; such a group cannot be
// deleted.
func (s *Sim) SetTargetLag(lag time.Duration) { s.mu.Do(func() { s.behind.targets = lag }) }

// DropAfterPage deletes a load balancer by hand as soon as the first page of the next listing of several pages is answered.
func (s *Sim) DropAfterPage(name string) { s.mu.Do(func() { s.behind.drop = name }) }

// EndTokensAfterPage ends all tokens as soon as the first page of the next listing of several pages is answered.
func (s *Sim) EndTokensAfterPage() { s.mu.Do(func() { s.behind.endTokens = true }) }

// afterPage does what is due after a page that another one follows.
func (s *Sim) afterPage(key string) {
	if s.behind.endTokens {
		s.behind.endTokens, s.tokens = false, map[string]time.Time{}
	}
	if name := s.behind.drop; name != "" && key == "load_balancers" {
		s.behind.drop = ""
		s.balancers = slices.DeleteFunc(slices.Clone(s.balancers), func(lb *LoadBalancer) bool { return lb.Name == name })
	}
}

// shownStatus is the status that documents show.
func (s *Sim) shownStatus(lb *LoadBalancer) string {
	status := lb.provisioning()
	if status == "update_pending" && lb.Provisioning == "" && time.Now().Before(lb.began.Add(s.behind.status)) {
		return "active"
	}
	return status
}

// release notes that a load balancer was taken from groups.
func (s *Sim) release(lb *LoadBalancer, groups ...string) {
	if s.behind.targets == 0 {
		return
	}
	for _, id := range groups {
		s.behind.releases = append(s.behind.releases, release{id, lb, time.Now().Add(s.behind.targets)})
	}
}

// released are the load balancers that a group still shows.
func (s *Sim) released(g SecurityGroup) (list []*LoadBalancer) {
	for _, one := range s.behind.releases {
		attached := slices.Contains(s.balancers, one.lb) && slices.Contains(one.lb.Groups, g.ID)
		if one.group == g.ID && time.Now().Before(one.until) && !attached {
			list = append(list, one.lb)
		}
	}
	return list
}
