package linodesim

// removeNodeBalancerLocked removes a NodeBalancer, and takes it off its firewalls.
func (s *Sim) removeNodeBalancerLocked(nb *NodeBalancer) {
	delete(s.nodeBalancers, nb.ID)
	s.changed(nb, nb.ID)
	for _, f := range s.firewalls {
		for id, e := range f.devices {
			if e.Type == "nodebalancer" && e.ID == nb.ID {
				delete(f.devices, id)
			}
		}
	}
}

// RemoveLoadBalancers removes all NodeBalancers, as somebody does by hand.
func (s *Sim) RemoveLoadBalancers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nb := range sorted(s.nodeBalancers) {
		s.removeNodeBalancerLocked(nb)
	}
}
