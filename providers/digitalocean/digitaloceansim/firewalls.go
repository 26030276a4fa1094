package digitaloceansim

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	firewallWaiting   = "waiting"
	firewallSucceeded = "succeeded"
)

// CloudFirewall is a cloud firewall as the API shows it.
type CloudFirewall struct {
	ID             string           `json:"id"`
	Name           string           `json:"name"`
	Status         string           `json:"status"`
	CreatedAt      string           `json:"created_at"`
	PendingChanges []map[string]any `json:"pending_changes"`
	InboundRules   []InboundRule    `json:"inbound_rules"`
	OutboundRules  []OutboundRule   `json:"outbound_rules"`
	DropletIDs     []int            `json:"droplet_ids"`
	Tags           []string         `json:"tags"`
}

// Peers are the sources or destinations of a firewall rule.
type Peers struct {
	Addresses        []string `json:"addresses,omitempty"`
	DropletIDs       []int    `json:"droplet_ids,omitempty"`
	LoadBalancerUIDs []string `json:"load_balancer_uids,omitempty"`
	KubernetesIDs    []string `json:"kubernetes_ids,omitempty"`
	Tags             []string `json:"tags,omitempty"`
}

// InboundRule lets traffic in.
type InboundRule struct {
	Protocol string `json:"protocol"`
	Ports    string `json:"ports"`
	Action   string `json:"action,omitempty"`
	Sources  *Peers `json:"sources"`
}

// OutboundRule lets traffic out.
type OutboundRule struct {
	Protocol     string `json:"protocol"`
	Ports        string `json:"ports"`
	Action       string `json:"action,omitempty"`
	Destinations *Peers `json:"destinations"`
}

type firewallRequest struct {
	Name          string         `json:"name"`
	InboundRules  []InboundRule  `json:"inbound_rules"`
	OutboundRules []OutboundRule `json:"outbound_rules"`
	DropletIDs    []int          `json:"droplet_ids"`
	Tags          []string       `json:"tags"`
}

var firewallName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.-]+$`)

func (s *Sim) checkFirewall(in *firewallRequest) error {
	switch {
	case !firewallName.MatchString(in.Name):
		return invalid("name %q is invalid", in.Name)
	case len(in.InboundRules)+len(in.OutboundRules) == 0:
		return invalid("must include at least one inbound or outbound rule")
	}
	if err := digitaloceanlimits.FirewallRules.CheckNumber(len(in.InboundRules) + len(in.OutboundRules)); err != nil {
		return err
	}
	for _, tag := range in.Tags {
		if s.tags[tag] == nil {
			return invalid("tag %s does not exist", tag)
		}
	}
	for i := range in.InboundRules {
		r := &in.InboundRules[i]
		if err := s.checkFirewallRule(r.Protocol, &r.Ports, r.Sources); err != nil {
			return err
		}
	}
	for i := range in.OutboundRules {
		r := &in.OutboundRules[i]
		if err := s.checkFirewallRule(r.Protocol, &r.Ports, r.Destinations); err != nil {
			return err
		}
	}
	return nil
}

// checkFirewallRule refuses what the API refuses, and writes ports as the API answers them: "0" for all.
func (s *Sim) checkFirewallRule(protocol string, ports *string, peers *Peers) error {
	if !slices.Contains([]string{"tcp", "udp", "icmp"}, protocol) {
		return invalid("protocol %q is invalid", protocol)
	}
	if protocol == "icmp" || *ports == "all" {
		*ports = "0"
	}
	if !legalPorts(*ports) {
		return invalid("ports %q are invalid", *ports)
	}
	if peers == nil || len(peers.Addresses)+len(peers.DropletIDs)+len(peers.LoadBalancerUIDs)+len(peers.KubernetesIDs)+len(peers.Tags) == 0 {
		return invalid("a rule needs at least one source or destination")
	}
	for _, a := range peers.Addresses {
		_, addressErr := netip.ParseAddr(a)
		if _, err := netip.ParsePrefix(a); err != nil && addressErr != nil {
			return invalid("address %q is invalid", a)
		}
	}
	for _, id := range peers.LoadBalancerUIDs {
		if s.loadBalancers[id] == nil {
			return invalid("load balancer %s does not exist", id)
		}
	}
	return nil
}

func legalPorts(text string) bool {
	low, high, isRange := strings.Cut(text, "-")
	from, err := strconv.Atoi(low)
	if err != nil || from < 0 || from > 65535 {
		return false
	}
	if !isRange {
		return true
	}
	to, err := strconv.Atoi(high)
	return err == nil && to >= from && to <= 65535
}

func (f *CloudFirewall) set(in *firewallRequest) {
	f.Name, f.InboundRules, f.OutboundRules, f.DropletIDs, f.Tags = in.Name, in.InboundRules, in.OutboundRules, in.DropletIDs, in.Tags
	if f.InboundRules == nil {
		f.InboundRules = []InboundRule{}
	}
	if f.OutboundRules == nil {
		f.OutboundRules = []OutboundRule{}
	}
}

// view is the firewall as a later read shows it: its change has reached the droplets.
func (f *CloudFirewall) view() CloudFirewall {
	c := *f
	c.Status = firewallSucceeded
	return c
}

func (s *Sim) firewallsLocked() []CloudFirewall {
	all := []CloudFirewall{}
	for _, f := range sorted(s.firewalls) {
		all = append(all, f.view())
	}
	return all
}

// listFirewalls has no order, nor have the rules.
func (s *Sim) listFirewalls(r *http.Request) (int, any, error) {
	all := s.firewallsLocked()
	if seen, lags := s.listed.Seen(); lags {
		all = slices.Clone(seen.firewalls)
	}
	for i := range all {
		all[i].InboundRules, all[i].Tags = simkit.Shuffled(&s.disorder, all[i].InboundRules), simkit.Shuffled(&s.disorder, all[i].Tags)
	}
	return list(r, "firewalls", simkit.Scattered(&s.disorder, all, func(f CloudFirewall) string { return f.ID }))
}

// Firewalls returns copies of all cloud firewalls in order of creation.
func (s *Sim) Firewalls() []CloudFirewall {
	return simkit.Get(&s.mu, func() []CloudFirewall { return s.firewallsLocked() })
}

// ChangeFirewall changes a cloud firewall behind the API's back, as a user does in the control panel.
func (s *Sim) ChangeFirewall(id string, change func(*CloudFirewall)) {
	s.mu.Do(func() { change(s.firewalls[id]) })
}

// RemoveFirewall deletes a cloud firewall, as a user does in the control panel.
func (s *Sim) RemoveFirewall(id string) { s.mu.Do(func() { delete(s.firewalls, id) }) }

func (s *Sim) createFirewall(r *http.Request) (int, any, error) {
	var in firewallRequest
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if err := s.checkFirewall(&in); err != nil {
		return 0, nil, err
	}
	for _, f := range s.firewalls {
		if f.Name == in.Name {
			return 0, nil, &apiError{http.StatusConflict, fmt.Sprintf("duplicate name: a firewall named %s exists", in.Name)}
		}
	}
	f := &CloudFirewall{ID: s.uuid(), CreatedAt: timestamp(), PendingChanges: []map[string]any{}}
	f.set(&in)
	s.firewalls[f.ID] = f
	answer := f.view()
	answer.Status = firewallWaiting
	return http.StatusAccepted, map[string]any{"firewall": answer}, nil
}

func (s *Sim) getFirewall(id string) (int, any, error) {
	f := s.firewalls[id]
	if f == nil {
		return 0, nil, errNotFound
	}
	return http.StatusOK, map[string]any{"firewall": f.view()}, nil
}

func (s *Sim) replaceFirewall(r *http.Request, id string) (int, any, error) {
	f := s.firewalls[id]
	if f == nil {
		return 0, nil, errNotFound
	}
	var in firewallRequest
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	if err := s.checkFirewall(&in); err != nil {
		return 0, nil, err
	}
	f.set(&in)
	answer := f.view()
	answer.Status = firewallWaiting
	return http.StatusOK, map[string]any{"firewall": answer}, nil
}

func (s *Sim) deleteFirewall(id string) (int, any, error) {
	if s.firewalls[id] == nil {
		return 0, nil, errNotFound
	}
	delete(s.firewalls, id)
	return http.StatusNoContent, nil, nil
}
