package cloudstacksim

import (
	"net/netip"
	"slices"
)

// maskError is the error of jobs that assign virtual machines since 4.19.1, whatever happened.
func (s *Sim) maskError(err error) error {
	if err != nil && s.version.atLeast(19, 1) {
		return refuse(codeInternal, "Failed to assign load balancer rule")
	}
	return err
}

// requestedMembers are the virtual machines, and the addresses, that a request about members names.
func (c *call) requestedMembers() ([]Member, error) {
	var list []Member
	for _, id := range c.p.list("virtualmachineids") {
		list = append(list, Member{VM: id})
	}
	for _, pair := range c.p.maps("vmidipmap") {
		id, ip := pair["vmid"], pair["vmip"]
		if err := c.checkID("vmidipmap", "vm", id); err != nil {
			return nil, err
		}
		if _, err := netip.ParseAddr(ip); ip != "" && err != nil {
			return nil, refuse(codeParam, "Invalid ip address %s passed in vmidipmap for vmid %s", ip, id)
		}
		list = append(list, Member{VM: id, IP: ip})
	}
	return list, nil
}

func (c *call) assignToLoadBalancerRule() (any, error) {
	s := c.s
	r, err := c.rule("id")
	if err != nil {
		return nil, err
	}
	list, err := c.requestedMembers()
	if err != nil {
		return nil, err
	}
	return jobResponse(c.submit(r.Network, job{
		kind: "FirewallRule", object: r.ID,
		effect: func() (any, error) {
			checked, err := c.assignable(r, list)
			if err != nil {
				return nil, s.maskError(err)
			}
			r.Members = append(slices.Clone(r.Members), checked...)
			r.State = ruleActive
			return success(), nil
		},
	}), ""), nil
}

// assignable are the members that a job adds; one that cannot be added fails all.
func (c *call) assignable(r *Rule, list []Member) ([]Member, error) {
	s := c.s
	if s.rules.ByID[r.ID] == nil {
		return nil, refuse(codeParam, "Failed to assign to load balancer %s, the load balancer was not found.", r.ID)
	}
	if len(list) == 0 {
		return nil, refuse(codeParam, "Both instanceids and vmidipmap  can't be null")
	}
	var checked []Member
	for _, m := range list {
		v := s.VMs.ByID[m.VM]
		if v == nil || v.State == "Destroyed" || v.State == "Expunging" {
			return nil, refuse(codeParam, "Invalid instance id specified")
		}
		if err := s.checkOperate(c.caller, v.Owner); err != nil || v.Owner != r.Owner {
			return nil, refuse(codePermission, "Acct %s does not have permission to operate with resource VM %s", c.caller.name, m.VM)
		}
		i := slices.IndexFunc(v.NICs, func(n NIC) bool { return n.Network == r.Network })
		if i < 0 {
			return nil, refuse(codeParam, "VM with id specified cannot be added because it doesn't belong in the same network.")
		}
		nic := v.NICs[i]
		if m.IP == "" {
			m.IP = nic.IP
		} else if m.IP != nic.IP && !slices.Contains(nic.Secondary, m.IP) {
			return nil, refuse(codeParam, "VM ip %s specified does not belong to the VM %s", m.IP, m.VM)
		}
		if slices.Contains(r.Members, m) || slices.Contains(checked, m) {
			return nil, refuse(codeParam, "VM %s with %s is already mapped to load balancer.", m.VM, m.IP)
		}
		checked = append(checked, m)
	}
	return checked, nil
}

func (c *call) removeFromLoadBalancerRule() (any, error) {
	s := c.s
	r, err := c.rule("id")
	if err != nil {
		return nil, err
	}
	list, err := c.requestedMembers()
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, refuse(codeParam, "Both instanceids and vmidipmap  can't be null")
	}
	return jobResponse(c.submit(r.Network, job{
		kind: "FirewallRule", object: r.ID,
		effect: func() (any, error) {
			if s.rules.ByID[r.ID] == nil {
				return nil, refuse(codeParam, "Invalid load balancer value: %s", r.ID)
			}
			r.Members = slices.DeleteFunc(slices.Clone(r.Members), func(m Member) bool {
				return slices.ContainsFunc(list, func(w Member) bool { return w.VM == m.VM && (w.IP == "" || w.IP == m.IP) })
			})
			r.State = ruleActive
			return success(), nil
		},
	}), ""), nil
}

func (c *call) listLoadBalancerRuleInstances() (any, error) {
	s := c.s
	r := s.rules.ByID[c.p["id"]]
	if r == nil {
		return nil, refuse(codeInternal, "Unable to find lb rule by id=%s", c.p["id"])
	}
	if err := s.checkOperate(c.caller, r.Owner); err != nil {
		return nil, err
	}
	var vms, pairs []map[string]any
	seen := map[string]int{}
	for _, m := range r.Members {
		v := s.VMs.ByID[m.VM]
		if v == nil || slices.Contains([]string{"Destroyed", "Expunging", "Error", "Unknown"}, v.State) || !c.p.boolean("applied", true) {
			continue
		}
		if i, again := seen[m.VM]; again {
			ips, _ := pairs[i]["lbvmipaddresses"].([]any)
			pairs[i]["lbvmipaddresses"] = append(ips, m.IP)
			continue
		}
		seen[m.VM] = len(vms)
		vms = append(vms, s.shownVM(v, nil, c.caller.admin))
		pairs = append(pairs, map[string]any{"loadbalancerruleinstance": vms[len(vms)-1], "lbvmipaddresses": []any{m.IP}})
	}
	if c.p.boolean("lbvmips", false) {
		return c.page("lbrulevmidip", pairs)
	}
	return c.page("loadbalancerruleinstance", vms)
}
