package vsphere

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// classes returns the effective classes: a class without its own pool or profiles inherits the section's; profiles of the class default
// come before those. A pool is inherited as a whole, so that a class may name its pool where the section has an ID.
func (c loadBalancerConfig) classes() map[string]loadBalancerClass {
	all := map[string]loadBalancerClass{}
	base := c.Classes[defaultClass].inherit(c.Class)
	for name, class := range c.Classes {
		inherited := c.Class
		inherited.TCPAppProfileName, inherited.TCPAppProfilePath = base.TCPAppProfileName, base.TCPAppProfilePath
		inherited.UDPAppProfileName, inherited.UDPAppProfilePath = base.UDPAppProfileName, base.UDPAppProfilePath
		all[name] = class.inherit(inherited)
	}
	all[defaultClass] = base
	return all
}

func (c loadBalancerClass) inherit(from loadBalancerClass) loadBalancerClass {
	if c.IPPoolID == "" && c.IPPoolName == "" {
		c.IPPoolID, c.IPPoolName = from.IPPoolID, from.IPPoolName
	}
	if c.TCPAppProfilePath == "" && c.TCPAppProfileName == "" {
		c.TCPAppProfilePath, c.TCPAppProfileName = from.TCPAppProfilePath, from.TCPAppProfileName
	}
	if c.UDPAppProfilePath == "" && c.UDPAppProfileName == "" {
		c.UDPAppProfilePath, c.UDPAppProfileName = from.UDPAppProfilePath, from.UDPAppProfileName
	}
	return c
}

// tier1Prefix begins the policy path of a tier-1 gateway.
const tier1Prefix = "/infra/tier-1s/"

// tier1 returns the ID of the gateway for routes: the last part of its path. Any other path is refused, because its last part would be
// taken for a tier-1 gateway that does not exist.
func (c routeConfig) tier1() (string, error) {
	id := strings.TrimSuffix(strings.TrimPrefix(c.RouterPath, tier1Prefix), "/")
	if id == "" || strings.Contains(id, "/") {
		return "", fmt.Errorf("%q is not the path of a tier-1 gateway; write %s<id>", c.RouterPath, tier1Prefix)
	}
	return id, nil
}

// nsxSections reports faults of the sections about NSX, other than missing keys.
func (c *Config) nsxSections(in registry.Inputs) error {
	var problems []error
	report := func(bad bool, key, reason string) {
		if bad {
			problems = append(problems, problem(key, reason))
		}
	}
	if c.Route.RouterPath != "" {
		if _, err := c.Route.tier1(); err != nil {
			report(true, "route.routerPath", err.Error())
		}
	}
	host := c.NSXT.Host
	bare := strings.TrimPrefix(strings.TrimPrefix(host, "http://"), "https://")
	report(strings.ContainsAny(bare, "/@? "), "nsxt.host", "is not the name or the address of a host")
	if err := schema.InsecureURL(host, in.AllowInsecureEndpoints); err != nil {
		report(true, "nsxt.host", err.Error())
	}
	if err := schema.InsecureURL(c.NSXT.VMCAuthHost, in.AllowInsecureEndpoints); err != nil {
		report(true, "nsxt.vmcAuthHost", err.Error())
	}
	if !c.LoadBalancer.Enabled {
		return errors.Join(problems...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.LoadBalancer.Classes)) {
		class := c.LoadBalancer.Classes[name]
		report(class.IPPoolID != "" && class.IPPoolName != "", "loadBalancerClass."+name+".ipPoolName",
			"is set beside ipPoolID; keep one")
	}
	room := nsxlimits.Tags.Max - ownTags
	report(len(c.LoadBalancer.Tags) > room, "loadBalancer.tags", fmt.Sprintf("has more than %d tags, which is all that NSX has room for", room))
	for _, scope := range slices.Sorted(maps.Keys(c.LoadBalancer.Tags)) {
		err := errors.Join(nsxlimits.Scope.CheckText(scope), nsxlimits.Tag.CheckText(c.LoadBalancer.Tags[scope]))
		report(scope == "" || err != nil, "loadBalancer.tags",
			fmt.Sprintf("has the scope %q: a scope has 1 to %d characters, and a tag at most %d", scope, nsxlimits.Scope.Max, nsxlimits.Tag.Max))
	}
	return errors.Join(problems...)
}
