package azuresim

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This file knows the legal values of fields below properties, by the API's description: kinds, enumerations, ranges and forms. A name has
// the same meaning wherever it is.

// legalValue judges a value; an empty one counts as not given.
type legalValue func(v any) bool

func isNumber(least, most int) legalValue {
	return func(v any) bool {
		n, ok := v.(float64)
		if i, whole := v.(int); whole { // not by way of a text
			n, ok = float64(i), true
		}
		return ok && n == float64(int(n)) && int(n) >= least && int(n) <= most
	}
}

func isFlag(v any) bool {
	_, ok := v.(bool)
	return ok
}

func isText(legal func(text string) bool) legalValue {
	return func(v any) bool {
		s, ok := v.(string)
		return ok && (s == "" || legal(s))
	}
}

// oneOf are the values of an enumeration, whose case says nothing.
func oneOf(values string) legalValue {
	all := strings.Fields(values)
	return isText(func(s string) bool {
		return slices.ContainsFunc(all, func(v string) bool { return strings.EqualFold(v, s) })
	})
}

func matchesForm(pattern string) legalValue {
	return isText(regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString)
}

func isAddress(s string) bool { _, err := netip.ParseAddr(s); return err == nil }

func isNetwork(s string) bool { _, err := netip.ParsePrefix(s); return err == nil }

// isPeer reports whether a text is an address, a network, all, or a service tag.
func isPeer(s string) bool { return isAddress(s) || isNetwork(s) || serviceTag.MatchString(s) }

// isPorts reports whether a text is a port, a range of ports, or all.
func isPorts(s string) bool {
	from, to, ranged := strings.Cut(s, "-")
	port := func(s string) bool { n, err := strconv.Atoi(s); return err == nil && n >= 0 && n <= 65535 }
	return s == "*" || port(from) && (!ranged || port(to))
}

var serviceTag = regexp.MustCompile(`^(\*|[A-Za-z][A-Za-z0-9]*(\.[A-Za-z0-9]+)*)$`)

// legalValues are the rules by the names of fields. A list is judged by its elements.
func legalValues() map[string]legalValue {
	const id = `(?i)/subscriptions/[0-9a-z-]+/resourceGroups/[^/ ]+/providers/[^ ~]+`
	all := map[string]legalValue{
		"name": matchesForm(`[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9_])?`), "id": matchesForm(id),
		"frontendPort": isNumber(0, 65534), "backendPort": isNumber(0, 65535), "port": isNumber(1, 65535), "idleTimeoutInMinutes": isNumber(4, 100),
		"intervalInSeconds": isNumber(5, 1<<31-1), "probeThreshold": isNumber(1, 100), "numberOfProbes": isNumber(0, 1<<31-1), "priority": isNumber(100, 4096),
		"provisioningState": oneOf("Succeeded Updating Deleting Failed Creating"), "dnsServers": isText(isAddress),
		"resourceGuid":    matchesForm(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`),
		"prefixLength":    isNumber(0, 128),
		"protocol":        oneOf("Tcp Udp All Http Https * Icmp Ah Esp"),
		"requestPath":     matchesForm(`/[^ ~]*`),
		"domainNameLabel": matchesForm(`[a-z][a-z0-9-]{1,61}[a-z0-9]`), "ipTagType": oneOf("RoutingPreference FirstPartyUsage"), "tag": matchesForm(`[A-Za-z0-9/._-]+`),
		"fqdns": matchesForm(`[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+`), "subscriptions": matchesForm(`\*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`),
		"vmSize": matchesForm(`(Standard|Basic)_[A-Za-z0-9_]+`), "addressPrefix": isText(isNetwork), "addressPrefixes": isText(isNetwork),
	}
	for names, legal := range map[string]legalValue{
		"enableFloatingIP enableTcpReset disableOutboundSnat enableConnectionTracking primary enableAcceleratedNetworking disableTcpStateTracking " +
			"enableIPForwarding enableProxyProtocol disableBgpRoutePropagation hasBgpOverride flushConnection": isFlag,
		"privateIPAllocationMethod publicIPAllocationMethod": oneOf("Static Dynamic"),
		"privateIPAddressVersion publicIPAddressVersion":     oneOf("IPv4 IPv6"),
		"loadDistribution":                  oneOf("Default SourceIP SourceIPProtocol"),
		"access":                            oneOf("Allow Deny"),
		"direction":                         oneOf("Inbound Outbound"),
		"nextHopType":                       oneOf("VirtualNetworkGateway VnetLocal Internet VirtualAppliance None"),
		"protectionMode":                    oneOf("VirtualNetworkInherited Enabled Disabled"),
		"privateLinkServiceNetworkPolicies": oneOf("Enabled Disabled"),
		"privateEndpointNetworkPolicies":    oneOf("Enabled Disabled NetworkSecurityGroupEnabled RouteTableEnabled"),
		"deleteOption":                      oneOf("Delete Detach"),
		"privateIPAddress ipAddress nextHopIpAddress":                                 isText(isAddress),
		"sourceAddressPrefix sourceAddressPrefixes":                                   isText(isPeer),
		"destinationAddressPrefix destinationAddressPrefixes":                         isText(isPeer),
		"sourcePortRange sourcePortRanges destinationPortRange destinationPortRanges": isText(isPorts),
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = legal
		}
	}
	return all
}

// readOnly are fields that the API fills in; what a write says about them is ignored.
func readOnly() []string {
	return strings.Fields("loadBalancingRules backendIPConfigurations defaultSecurityRules networkInterfaces subnets " +
		"privateEndpointConnections alias ipConfiguration fqdn etag type hostedWorkloads internalDomainNameSuffix")
}

// checkValues refuses invalid values in a write. top are the lists of the resource itself; one may share its name with a field that is
// read-only elsewhere.
func checkValues(v any, path string, rules map[string]legalValue, ignored, top []string) *failure {
	switch v := v.(type) {
	case object:
		for key, value := range v {
			if value == nil || slices.Contains(ignored, key) && !slices.Contains(top, key) {
				continue
			}
			if legal := rules[key]; legal != nil && !eachLegal(value, legal) {
				return invalid("InvalidRequestFormat", "Cannot parse the request. The value '%v' at path '%s.%s' is not legal.", value, path, key)
			}
			if f := checkValues(value, path+"."+key, rules, ignored, nil); f != nil {
				return f
			}
		}
	case []any:
		for _, value := range v {
			if f := checkValues(value, path+"[]", rules, ignored, nil); f != nil {
				return f
			}
		}
	}
	return nil
}

func eachLegal(v any, legal legalValue) bool {
	list, several := v.([]any)
	if !several {
		_, inner := v.(object)
		return inner || legal(v)
	}
	return !slices.ContainsFunc(list, func(one any) bool { return !legal(one) })
}

// dropDerived takes from properties and their named parts what the API derives of them, and what a write repeats of an answer.
func dropDerived(props object) {
	delete(props, "resourceGuid")
	for key := range props {
		for _, part := range items(props, key) {
			for _, derived := range []string{"id", "etag", "type"} {
				delete(part, derived)
			}
			delete(properties2(part), "provisioningState")
		}
	}
}
