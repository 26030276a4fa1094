package cloudstacksim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacklimits"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// command is one of the API.
type command struct {
	// params are the parameters that it takes, as NAME, NAME:TYPE or *NAME:TYPE where they are required. A type is int, bool, list, map,
	// or the kind of thing that a UUID has to name; one that ends with [] is a list of these.
	params string
	// async is set where a job does the work, admin where only root admins may use it.
	async, admin bool
	run          func(*call) (any, error)
}

// paging and scoping are parameters of listings.
const (
	paging   = " keyword page:int pagesize:int"
	scoping  = " listall:bool projectid:project account domainid:domain isrecursive:bool"
	unscoped = " listall:bool account domainid:domain isrecursive:bool"
	listing  = paging + scoping
)

// commands are those that the simulator knows.
func commands() map[string]command {
	all := map[string]command{
		"listCapabilities": {run: (*call).listCapabilities},
		"listManagementServersMetrics": {
			params: "id:server name" + paging, admin: true, run: (*call).listManagementServersMetrics,
		},
		"queryAsyncJobResult": {params: "*jobid:job", run: (*call).queryAsyncJobResult},
		"listProjects":        {params: "id:project name displaytext state" + paging + unscoped, run: (*call).listProjects},
		"listZones":           {params: "id:zone name available:bool showcapacities:bool networktype" + paging, run: (*call).listZones},
		"listVirtualMachines": {
			params: "id:vm ids:vm[] name zoneid:zone networkid:network vpcid:vpc state details:list " +
				"retrieveonlyresourcecount:bool accumulate:bool" + listing,
			run: (*call).listVirtualMachines,
		},
		"listNetworks": {
			params: "id:network type vpcid:vpc zoneid:zone forvpc:bool supportedservices:list networkfilter " +
				"canusefordeploy:bool issystem:bool" + listing,
			run: (*call).listNetworks,
		},
	}
	for _, more := range []map[string]command{addressCommands(), ruleCommands(), firewallCommands(), aclCommands()} {
		maps.Copy(all, more)
	}
	return all
}

func addressCommands() map[string]command {
	return map[string]command{
		"listPublicIpAddresses": {
			params: "id:ip ipaddress allocatedonly:bool associatednetworkid:network vpcid:vpc networkid:network state forloadbalancing:bool " +
				"forvirtualnetwork:bool issourcenat:bool isstaticnat:bool zoneid:zone physicalnetworkid:physical vlanid:vlan fordisplay:bool " +
				"retrieveonlyresourcecount:bool" + listing,
			run: (*call).listPublicIPAddresses,
		},
		"associateIpAddress": {
			params: "networkid:network vpcid:vpc zoneid:zone ipaddress projectid:project account domainid:domain isportable:bool regionid:int " +
				"fordisplay:bool",
			async: true, run: (*call).associateIPAddress,
		},
		"disassociateIpAddress": {params: "id:ip ipaddress", async: true, run: (*call).disassociateIPAddress},
	}
}

func ruleCommands() map[string]command {
	return map[string]command{
		"listLoadBalancerRules": {
			params: "id:rule name publicipid:ip networkid:network virtualmachineid:vm zoneid:zone fordisplay:bool" + listing,
			run:    (*call).listLoadBalancerRules,
		},
		"createLoadBalancerRule": {
			params: "*algorithm *name *privateport:int *publicport:int publicipid:ip networkid:network zoneid:zone protocol cidrlist:list " +
				"openfirewall:bool description account domainid:domain fordisplay:bool",
			async: true, run: (*call).createLoadBalancerRule,
		},
		"updateLoadBalancerRule": {
			params: "*id:rule algorithm name description protocol cidrlist:list fordisplay:bool customid", async: true,
			run: (*call).updateLoadBalancerRule,
		},
		"deleteLoadBalancerRule": {params: "*id:rule", async: true, run: (*call).deleteLoadBalancerRule},
		"assignToLoadBalancerRule": {
			params: "*id:rule virtualmachineids:vm[] vmidipmap:map", async: true, run: (*call).assignToLoadBalancerRule,
		},
		"removeFromLoadBalancerRule": {
			params: "*id:rule virtualmachineids:vm[] vmidipmap:map", async: true, run: (*call).removeFromLoadBalancerRule,
		},
		"listLoadBalancerRuleInstances": {
			params: "*id:rule applied:bool lbvmips:bool" + paging, run: (*call).listLoadBalancerRuleInstances,
		},
		"listLBStickinessPolicies": {params: "id:policy lbruleid:rule fordisplay:bool" + paging, run: (*call).listLBStickinessPolicies},
		"createLBStickinessPolicy": {
			params: "*lbruleid:rule *methodname *name param:map description fordisplay:bool", async: true, run: (*call).createLBStickinessPolicy,
		},
		"deleteLBStickinessPolicy": {params: "*id:policy", async: true, run: (*call).deleteLBStickinessPolicy},
	}
}

func firewallCommands() map[string]command {
	return map[string]command{
		"listFirewallRules": {
			params: "id:firewall ipaddressid:ip networkid:network fordisplay:bool" + listing, run: (*call).listFirewallRules,
		},
		"listPortForwardingRules": {
			params: "id:forward ipaddressid:ip networkid:network fordisplay:bool" + listing, run: (*call).listPortForwardingRules,
		},
		"listIpForwardingRules": { // those of static NAT, which nobody makes here
			params: "id:forward ipaddressid:ip virtualmachineid:vm" + listing,
			run:    func(c *call) (any, error) { return c.page("ipforwardingrule", nil) },
		},
		"createFirewallRule": {
			params: "*ipaddressid:ip *protocol startport:int endport:int cidrlist:list icmptype:int icmpcode:int type fordisplay:bool",
			async:  true, run: (*call).createFirewallRule,
		},
		"deleteFirewallRule": {params: "*id:firewall", async: true, run: (*call).deleteFirewallRule},
	}
}

func aclCommands() map[string]command {
	const fields = " startport:int endport:int cidrlist:list action traffictype number:int reason icmptype:int icmpcode:int fordisplay:bool"
	return map[string]command{
		"listNetworkACLs": {
			params: "id:aclitem aclid:acl networkid:network protocol action traffictype fordisplay:bool" + listing,
			run:    (*call).listNetworkACLs,
		},
		"createNetworkACL": {
			params: "*protocol aclid:acl networkid:network" + fields, async: true, run: (*call).createNetworkACL,
		},
		"deleteNetworkACL": {params: "*id:aclitem", async: true, run: (*call).deleteNetworkACL},
		"listNetworkACLLists": {
			params: "id:acl vpcid:vpc networkid:network name fordisplay:bool" + listing, run: (*call).listNetworkACLLists,
		},
	}
}

// commonParams are the parameters of every command.
func commonParams() []string {
	return []string{"apikey", "command", "response", "signature", "signatureversion", "expires"}
}

// limitOf returns the limit of a parameter that is a text.
func limitOf(command, parameter string) limits.Limit {
	l, listed := cloudstacklimits.Table.Find(command, limits.Size{Path: parameter, Unit: limits.Characters})
	if !listed {
		return cloudstacklimits.Text
	}
	return l
}

// spec is one parameter of a command.
type spec struct {
	name, kind string
	required   bool
}

func (c command) specs() map[string]spec {
	all := map[string]spec{}
	for field := range strings.FieldsSeq(c.params) {
		name, required := strings.CutPrefix(field, "*")
		name, kind, _ := strings.Cut(name, ":")
		all[name] = spec{name: name, kind: kind, required: required}
	}
	return all
}

// check refuses parameters that the command does not have, that are missing, and that have no legal value. The real server logs what it
// does not know; what nobody reads is a fault of the client's, so it is refused here, unless IgnoreUnknown was called.
func (c *call) check(cmd command) error {
	specs := cmd.specs()
	for name := range c.p {
		base, _, _ := strings.Cut(name, "[")
		if s, known := specs[base]; (!known || (s.kind == "map") != (base != name)) && !slices.Contains(commonParams(), name) {
			if c.s.ignores {
				delete(c.p, name)
				continue
			}
			return refuse(codeParam, "Unknown parameter %s of the API command %s", name, c.name)
		}
	}
	for _, s := range specs {
		value := c.p[s.name]
		missing := value == ""
		if s.kind == "map" {
			missing = len(c.p.maps(s.name)) == 0
		}
		if s.required && missing {
			return refuse(codeParam, "Unable to execute API command %s due to missing parameter %s", strings.ToLower(c.name), s.name)
		}
		if value == "" || s.kind == "map" {
			continue
		}
		if err := c.checkValue(s, value); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) checkValue(s spec, value string) error {
	wrong := refuse(codeParam, "Unable to execute API command %s due to invalid value %s for parameter %s", strings.ToLower(c.name), value, s.name)
	switch kind, many := strings.CutSuffix(s.kind, "[]"); {
	case s.kind == "list":
		return nil
	case s.kind == "int":
		if n, err := strconv.Atoi(value); err != nil || int(int32(n)) != n { //nolint:gosec // this is the check
			return wrong
		}
	case s.kind == "bool":
		if _, err := strconv.ParseBool(strings.ToLower(value)); err != nil {
			return wrong
		}
	case s.kind == "":
		limit := limitOf(c.name, s.name)
		if excess := limit.CheckText(value); excess != nil {
			return &apiError{codeParam, fmt.Sprintf("Value greater than max allowed length %d for param: %s", limit.Max, s.name), excess}
		}
	case s.kind == "project" && value == "-1" && strings.HasPrefix(c.name, "list"):
		return nil
	case many:
		for _, id := range c.p.list(s.name) {
			if err := c.checkID(s.name, kind, id); err != nil {
				return err
			}
		}
	default:
		return c.checkID(s.name, kind, value)
	}
	return nil
}

// checkID refuses the ID of what never was.
func (c *call) checkID(parameter, kind, id string) error {
	if c.s.kinds[id] == kind {
		return nil
	}
	return refuse(codeParam, "Unable to execute API command %s due to invalid value. Invalid parameter %s value=%s due to incorrect long value "+
		"format, or entity does not exist or due to incorrect parameter annotation for the field in api cmd class.",
		strings.ToLower(c.name), parameter, id)
}

// cidrs checks a list of networks; addresses alone pass where plain is set.
func cidrs(list []string, plain bool, format string) error {
	for _, text := range list {
		_, err := netip.ParsePrefix(text)
		if _, address := netip.ParseAddr(text); err != nil && (!plain || address != nil) {
			return refuse(codeParam, format, text)
		}
	}
	return nil
}
