package cloudstacksim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRules: a rule is made, gets members, changes and goes; its ports are texts, its CIDRs are joined by blanks when it is made and by
// commas when it changes.
func TestRules(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		vm := c.sim.AddVM(Spec{Name: "a"})
		id, _ := c.rule("cidrlist", "10.0.0.0/8,192.0.2.1", "description", "for web")
		r := c.only("loadbalancerrule", "listLoadBalancerRules", "keyword", "FOR WEB")
		assert.Equal(t, []any{"80", "30080", "tcp", "10.0.0.0/8 192.0.2.1", ruleAdd}, []any{
			r["publicport"], r["privateport"], r["protocol"], r["cidrlist"], r["state"],
		})
		assert.Empty(t, c.list("loadbalancerruleinstance", "listLoadBalancerRuleInstances", "id", id))
		c.run("assignToLoadBalancerRule", "id", id, "virtualmachineids", vm)
		assert.Equal(t, vm, c.only("loadbalancerruleinstance", "listLoadBalancerRuleInstances", "id", id)["id"])
		pair := c.only("lbrulevmidip", "listLoadBalancerRuleInstances", "id", id, "lbvmips", "true")
		assert.Equal(t, []any{c.sim.List()[0].NICs[0].IP}, pair["lbvmipaddresses"])
		assert.Equal(t, ruleActive, c.only("loadbalancerrule", "listLoadBalancerRules", "virtualmachineid", vm)["state"])
		c.run("updateLoadBalancerRule", "id", id, "algorithm", "source", "protocol", "tcp-proxy", "name", "web-tcp-proxy-80", "cidrlist", "10.0.0.0/8,192.0.2.0/24")
		r = c.only("loadbalancerrule", "listLoadBalancerRules", "name", "web-tcp-proxy-80")
		assert.Equal(t, []any{"source", "tcp-proxy", "10.0.0.0/8,192.0.2.0/24"}, []any{r["algorithm"], r["protocol"], r["cidrlist"]})
		c.sim.SetVersion(V420)
		c.run("updateLoadBalancerRule", "id", id, "cidrlist", "198.51.100.0/24")
		assert.Equal(t, "10.0.0.0/8,192.0.2.0/24", c.only("loadbalancerrule", "listLoadBalancerRules")["cidrlist"], "before 4.22 nobody reads it")
		c.run("removeFromLoadBalancerRule", "id", id, "virtualmachineids", vm)
		assert.Empty(t, c.sim.Rules()[0].Members)
		c.run("deleteLoadBalancerRule", "id", id)
		assert.Empty(t, c.list("loadbalancerrule", "listLoadBalancerRules"))
		c.requireRefusal(codeParam, "Unable to find lb rule by id", "deleteLoadBalancerRule", "id", id)
		c.requireRefusal(codeInternal, "", "listLoadBalancerRuleInstances", "id", id)
		assert.Empty(t, c.list("loadbalancerrule", "listLoadBalancerRules", "id", id))
	})
}

// TestRefusedRules: what a real server refuses.
func TestRefusedRules(t *testing.T) {
	run(t, Options{}, func(_ *testing.T, c *client) {
		_, address := c.rule()
		try := func(code int, words string, change ...string) {
			c.Helper()
			fields := map[string]string{
				"algorithm": "roundrobin", "name": "x", "privateport": "30081", "publicport": "81", "publicipid": address,
				"networkid": c.sim.SeedNetwork(), "openfirewall": "false",
			}
			for i := 0; i < len(change); i += 2 {
				fields[change[i]] = change[i+1]
			}
			var pairs []string
			for name, value := range fields {
				pairs = append(pairs, name, value)
			}
			c.requireRefusal(code, words, "createLoadBalancerRule", pairs...)
		}
		try(codeConflict, "The range specified, 80-80, conflicts with rule", "publicport", "80")
		try(codeConflict, "conflicts with rule", "publicport", "80", "protocol", "tcp-proxy")
		try(codeParam, "privatePort is an invalid value: 0", "privateport", "0")
		try(codeParam, "Invalid algorithm: random", "algorithm", "random")
		try(codeParam, "CIDR [10.0.0.0/99] is invalid.", "cidrlist", "10.0.0.0/99")
		try(codeParam, "service provider cannot support this rule", "protocol", "udp")
		try(codeParam, "service provider cannot support this rule", "publicport", "8081")
		try(codeParam, "Ip address 203.0.113.11 is not assigned to the network", "networkid", c.sim.AddNetwork(NetworkSpec{Name: "second"}))
		c.sim.AddForward(address, 22)
		try(codeConflict, "22-22", "publicport", "22")
		c.sim.EditAddress("203.0.113.11", func(a *Address) { a.StaticNAT = "x" })
		try(codeConflict, "Can't do load balance on ip address", "publicport", "23")
		c.withKeys(OtherKey, OtherSecret).requireRefusal(codePermission, "", "deleteLoadBalancerRule", "id", c.sim.Rules()[0].ID)
	})
}

// TestMembers: one virtual machine that cannot be assigned fails all, and since 4.19.1 nobody says why.
func TestMembers(t *testing.T) {
	run(t, Options{Version: V419}, func(t *testing.T, c *client) {
		id, _ := c.rule()
		good, bad := c.sim.AddVM(Spec{Name: "good"}), c.sim.AddVM(Spec{Name: "bad", Networks: []string{c.sim.AddNetwork(NetworkSpec{Name: "second"})}})
		c.failed(codeParam, "doesn't belong in the same network", "assignToLoadBalancerRule", "id", id, "virtualmachineids", good+","+bad)
		assert.Empty(t, c.sim.Rules()[0].Members)
		c.run("assignToLoadBalancerRule", "id", id, "virtualmachineids", good)
		c.failed(codeParam, "already mapped", "assignToLoadBalancerRule", "id", id, "virtualmachineids", good)
		c.failed(codeParam, "can't be null", "assignToLoadBalancerRule", "id", id)
		c.sim.SetVersion(V420)
		c.failed(codeInternal, "Failed to assign load balancer rule", "assignToLoadBalancerRule", "id", id, "virtualmachineids", good)
		c.run("removeFromLoadBalancerRule", "id", id, "virtualmachineids", bad)
		require.NoError(t, c.sim.SetStatus(good, "Destroyed"))
		assert.Empty(t, c.list("loadbalancerruleinstance", "listLoadBalancerRuleInstances", "id", id), "it is not shown")
		assert.Len(t, c.sim.Rules()[0].Members, 1, "it is still mapped")
		c.sim.Remove(good)
		assert.Empty(t, c.sim.Rules()[0].Members)
	})
}

// TestReleasedAddress: with an address go all rules on it, whoever made them; that of source NAT stays.
func TestReleasedAddress(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		_, address := c.rule()
		c.ruleOn(address, "by-hand", "443")
		c.sim.AddForward(address, 22)
		c.run("createFirewallRule", "ipaddressid", address, "protocol", "tcp", "startport", "80", "endport", "80", "cidrlist", "192.0.2.0/24")
		assert.Equal(t, true, c.only("publicipaddress", "listPublicIpAddresses", "id", address)["hasrules"])
		c.run("disassociateIpAddress", "id", address)
		assert.Empty(t, c.sim.Rules())
		assert.Empty(t, c.sim.Firewalls())
		assert.Empty(t, c.sim.Forwards())
		c.run("disassociateIpAddress", "id", address)
		source := c.only("publicipaddress", "listPublicIpAddresses")
		assert.Equal(t, true, source["issourcenat"])
		c.failed(codeInternal, "source nat purposes", "disassociateIpAddress", "id", source["id"].(string))
		free := c.only("publicipaddress", "listPublicIpAddresses", "ipaddress", "203.0.113.11", "allocatedonly", "false")
		assert.NotContains(t, free, "allocated")
		assert.Equal(t, stateFree, free["state"])
	})
}

// TestAddresses: quotas, addresses that are taken and quarantine are refused, each with its code.
func TestAddresses(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		id := c.run("associateIpAddress", "networkid", c.sim.SeedNetwork(), "ipaddress", "203.0.113.99")
		assert.Equal(t, "203.0.113.99", c.only("publicipaddress", "listPublicIpAddresses", "id", id)["ipaddress"])
		c.requireRefusal(codeCapacity, "", "associateIpAddress", "networkid", c.sim.SeedNetwork(), "ipaddress", "203.0.113.99")
		c.sim.EditAddress("203.0.113.98", func(a *Address) { a.Quarantined = true })
		c.requireRefusal(codeCapacity, "quarantine", "associateIpAddress", "networkid", c.sim.SeedNetwork(), "ipaddress", "203.0.113.98")
		c.sim.SetQuota(c.sim.accountNamed(User).id, 2)
		c.requireRefusal(codeAllocation, "public_ip", "associateIpAddress", "networkid", c.sim.SeedNetwork())
		c.sim.SetQuota(c.sim.accountNamed(User).id, -1)
		c.run("associateIpAddress", "zoneid", c.sim.zone.ID)
		c.sim.TakeAddresses()
		c.requireRefusal(codeCapacity, "", "associateIpAddress", "networkid", c.sim.SeedNetwork())
		c.sim.AddNetwork(NetworkSpec{Name: "second", Services: []string{"Lb"}})
		c.requireRefusal(codeParam, "more than one isolated network", "associateIpAddress", "zoneid", c.sim.zone.ID)
	})
}

// TestFirewall: rules conflict where a CIDR is the same, and a load balancer rule opens the firewall unless it is told not to.
func TestFirewall(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		address := c.run("associateIpAddress", "networkid", c.sim.SeedNetwork())
		port := []string{"ipaddressid", address, "protocol", "TCP", "startport", "80", "endport", "80"}
		id := c.run("createFirewallRule", append(port, "cidrlist", "10.0.0.0/8,192.0.2.0/24")...)
		f := c.only("firewallrule", "listFirewallRules", "networkid", c.sim.SeedNetwork())
		assert.Equal(t, []any{"tcp", 80.0, "10.0.0.0/8,192.0.2.0/24", ruleActive}, []any{f["protocol"], f["startport"], f["cidrlist"], f["state"]})
		c.requireRefusal(codeConflict, "80-80", "createFirewallRule", append(port, "cidrlist", "10.0.0.0/8")...)
		c.run("createFirewallRule", append(port, "cidrlist", "198.51.100.0/24")...)
		c.requireRefusal(codeParam, "formatting error 10.0.0.1", "createFirewallRule", append(port, "cidrlist", "10.0.0.1")...)
		c.run("deleteFirewallRule", "id", id)
		assert.Len(t, c.sim.Firewalls(), 1)
		opened := c.run("createLoadBalancerRule", "algorithm", "roundrobin", "name", "x", "privateport", "1", "publicport", "443", "publicipid", address)
		assert.Len(t, c.sim.Firewalls(), 2, "the default opens it to everyone")
		c.run("deleteLoadBalancerRule", "id", opened)
		assert.Len(t, c.sim.Firewalls(), 1)
	})
}

// TestTiers: a tier has ACLs in the place of a firewall; its addresses belong to the VPC until a rule needs them.
func TestTiers(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		vpc, own := c.sim.MakeTier()
		tier := c.sim.SeedNetwork()
		n := c.only("network", "listNetworks", "id", tier)
		assert.Equal(t, []any{vpc, own, "own"}, []any{n["vpcid"], n["aclid"], n["aclname"]})
		address := c.run("associateIpAddress", "vpcid", vpc)
		assert.NotContains(t, c.only("publicipaddress", "listPublicIpAddresses", "id", address), "associatednetworkid")
		rule := c.ruleOn(address, "x", "80")
		assert.Equal(t, tier, c.only("publicipaddress", "listPublicIpAddresses", "id", address)["associatednetworkid"])
		c.requireRefusal(codeParam, "Service Firewall is not supported", "createFirewallRule", "ipaddressid", address, "protocol", "tcp")
		c.run("deleteLoadBalancerRule", "id", rule)
		assert.NotContains(t, c.only("publicipaddress", "listPublicIpAddresses", "id", address), "associatednetworkid")

		item := []string{"aclid", own, "protocol", "tcp", "startport", "80", "endport", "80", "action", "allow", "traffictype", "ingress"}
		id := c.run("createNetworkACL", append(item, "reason", "ours")...)
		c.run("createNetworkACL", append(item, "cidrlist", allNetworks)...)
		shown := c.only("networkacl", "listNetworkACLs", "keyword", "ours")
		assert.Equal(
			t, []any{"80", "Allow", "Ingress", allNetworks, 1.0},
			[]any{shown["startport"], shown["action"], shown["traffictype"], shown["cidrlist"], shown["number"]},
		)
		c.requireRefusal(codeParam, "Invalid protocol [tcp-proxy]", "createNetworkACL", "aclid", own, "protocol", "tcp-proxy")
		c.requireRefusal(codeParam, "already exists in ACL", "createNetworkACL", append(item, "number", "2")...)
		c.requireRefusal(codeParam, "is required", "createNetworkACL", "protocol", "tcp")
		assert.Equal(t, "80", c.only("networkacl", "listNetworkACLs", "id", id)["startport"])
		c.run("deleteNetworkACL", "id", id)
		assert.Len(t, c.list("networkacl", "listNetworkACLs", "networkid", tier), 1)

		global := c.only("networkacllist", "listNetworkACLLists", "name", listAllow)["id"].(string)
		c.requireRefusal(codeParam, "Default ACL cannot be modified", "createNetworkACL", "aclid", global, "protocol", "tcp")
		custom := c.sim.AddACLList("company", "")
		c.requireRefusal(codePermission, "", "createNetworkACL", "aclid", custom, "protocol", "tcp")
		made := c.sim.AddACLList("made", vpc)
		c.sim.EditNetwork(tier, func(n *Network) { n.ACL = made })
		assert.Equal(t, "made", c.only("networkacllist", "listNetworkACLLists", "networkid", tier)["name"])
	})
}

// TestPolicies: methods and parameters of stickiness are those that the network knows.
func TestPolicies(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		rule, _ := c.rule()
		policy := []string{"lbruleid", rule, "name", "p", "methodname", "lbcookie"}
		id := c.run("createLBStickinessPolicy", append(policy, "param[0].name", "cookie-name", "param[0].value", "c")...)
		shown := c.only("stickinesspolicies", "listLBStickinessPolicies", "lbruleid", rule)
		list, _ := shown["stickinesspolicy"].([]any)
		require.Len(t, list, 1)
		assert.Equal(t, map[string]any{"cookie-name": "c"}, list[0].(map[string]any)["params"])
		assert.Equal(t, "LbCookie", list[0].(map[string]any)["methodname"])
		c.requireRefusal(codeParam, "param name :key", "createLBStickinessPolicy", append(policy, "param[0].name", "key", "param[0].value", "c")...)
		c.requireRefusal(codeParam, "Failed to match", "createLBStickinessPolicy", "lbruleid", rule, "name", "p", "methodname", "Random")
		c.requireRefusal(codeParam, "size format", "createLBStickinessPolicy", "lbruleid", rule, "name", "p", "methodname", "SourceBased",
			"param[0].name", "tablesize", "param[0].value", "much")
		c.run("deleteLBStickinessPolicy", "id", id)
		assert.Empty(t, c.sim.Policies())
	})
}

// TestSimulatorServesCloudStacksController: the simulator takes the sequence of requests by which CloudStack's own controller makes a load
// balancer, gives it another node, and deletes it.
func TestSimulatorServesCloudStacksController(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		for _, name := range []string{"node-1", "node-2"} {
			c.sim.AddVM(Spec{Name: name})
		}
		const balancer = "a224691befa864b07938cc86d948b99f"
		find := []string{"keyword", balancer, "listall", "true"}
		assert.Empty(t, c.list("loadbalancerrule", "listLoadBalancerRules", find...))
		machines := c.list("virtualmachine", "listVirtualMachines", "listall", "true", "details", "min,nics")
		require.Len(t, machines, 2)
		network, _ := machines[0]["nic"].([]any)[0].(map[string]any)["networkid"].(string)
		assert.NotContains(t, c.only("network", "listNetworks", "id", network), "vpcid", "a firewall it is then, and no list of ACLs")
		address := c.run("associateIpAddress", "networkid", network)
		rule := c.run("createLoadBalancerRule", "algorithm", "roundrobin", "name", balancer+"-tcp-80", "networkid", network, "openfirewall", "false",
			"privateport", "30080", "protocol", "tcp", "publicipid", address, "publicport", "80", "cidrlist", allNetworks)
		node := func(n int) string { return machines[n]["id"].(string) }
		c.run("assignToLoadBalancerRule", "id", rule, "virtualmachineids", node(0))
		onAddress := []string{"ipaddressid", address, "listall", "true"}
		assert.Empty(t, c.list("firewallrule", "listFirewallRules", onAddress...))
		c.run("createFirewallRule", "ipaddressid", address, "protocol", "tcp", "startport", "80", "endport", "80", "cidrlist", allNetworks)

		found := c.only("loadbalancerrule", "listLoadBalancerRules", find...)
		assert.Equal(t, []any{rule, address, "80", "30080"}, []any{found["id"], found["publicipid"], found["publicport"], found["privateport"]})
		assert.Len(t, c.list("loadbalancerruleinstance", "listLoadBalancerRuleInstances", "id", rule), 1)
		c.run("assignToLoadBalancerRule", "id", rule, "virtualmachineids", node(1))
		c.run("removeFromLoadBalancerRule", "id", rule, "virtualmachineids", node(0))
		assert.Equal(t, node(1), c.only("loadbalancerruleinstance", "listLoadBalancerRuleInstances", "id", rule)["id"])

		assert.Equal(t, network, c.only("publicipaddress", "listPublicIpAddresses", "id", address)["associatednetworkid"])
		c.run("deleteFirewallRule", "id", c.only("firewallrule", "listFirewallRules", onAddress...)["id"].(string))
		c.run("deleteLoadBalancerRule", "id", rule)
		assert.Empty(t, c.list("loadbalancerrule", "listLoadBalancerRules", find...))
		c.run("disassociateIpAddress", "id", address)
		assert.Equal(t, stateFree, c.only("publicipaddress", "listPublicIpAddresses", "id", address, "allocatedonly", "false")["state"])
	})
}
