package nsxsim

import (
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the ports of virtual servers lead, as far as NSX has realized them.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := simkit.Ports{}
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		o := s.objects[at]
		if path.Dir(at) != "/infra/lb-virtual-servers" || o.Fields["enabled"] == false || !s.realizedOnceLocked(at) {
			continue
		}
		if service := o.Text("lb_service_path"); !s.realizedOnceLocked(service) || s.objects[service].Fields["enabled"] == false {
			continue
		}
		protocol := "tcp"
		if profile := s.objects[o.Text("application_profile_path")]; profile != nil && profile.Fields["resource_type"] == typeFastUDP {
			protocol = "udp"
		}
		for i, text := range texts(o.Fields["ports"]) {
			port, _ := strconv.Atoi(text) // as it was checked
			member := text
			if given := texts(o.Fields["default_pool_member_ports"]); len(given) > 0 {
				member = given[min(i, len(given)-1)]
			}
			ports.Add(protocol, port, "", s.membersLocked(o.Text("pool_path"), member))
		}
	}
	return ports
}

// realizedOnceLocked reports whether an object is in force, of this revision or of one before.
func (s *Sim) realizedOnceLocked(at string) bool {
	o := s.objects[at]
	return o != nil && (o.Revision > 0 && s.reasonLocked(o) == "" || s.realLocked(o))
}

// membersLocked are the members of a pool that get traffic, at the port of their own or at the one of the virtual server.
func (s *Sim) membersLocked(pool, port string) (all []string) {
	if !s.realizedOnceLocked(pool) {
		return nil
	}
	members, _ := s.objects[pool].Fields["members"].([]any)
	for _, v := range members {
		m, _ := v.(map[string]any)
		own, given := m["port"].(string)
		if !given {
			own = port
		}
		if ip, ok := m["ip_address"].(string); ok && (m["admin_state"] == nil || m["admin_state"] == "ENABLED") {
			all = append(all, ip+":"+own)
		}
	}
	return all
}
