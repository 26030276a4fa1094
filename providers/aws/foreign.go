package aws

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// foreignAnnotations are those that AWS Load Balancer Controller alone reads, and what serves the same here.
func foreignAnnotations() map[string]string {
	all := map[string]string{}
	for name, hint := range map[string]string{
		"scheme":                              "a load balancer is internal where " + annotationInternal + " is \"true\", else public",
		"nlb-target-type":                     "targets are the nodes",
		"ip-address-type":                     "spec.ipFamilies and spec.ipFamilyPolicy choose the families of addresses",
		"attributes":                          annotationCrossZone + " and " + annotationAccessLog + " are served, other attributes stay as they are",
		"name":                                "the name is made of the UID of the Service",
		"security-group-prefix-lists":         "spec.loadBalancerSourceRanges says which networks may connect",
		"manage-backend-security-group-rules": "the option DisableSecurityGroupIngress does for all Services what \"false\" does for one",
	} {
		all[annotationPrefix+name] = hint
	}
	for _, name := range []string{
		"alpn-policy", "enable-icmp-for-path-mtu-discovery", "enable-prefix-for-ipv6-source-nat", "healthcheck-success-codes",
		"inbound-sg-rules-on-private-link-traffic", "ipv6-addresses", "minimum-load-balancer-capacity", "multi-cluster-target-group",
		"source-nat-ipv6-prefixes",
	} {
		all[annotationPrefix+name] = "nothing serves the same"
	}
	return all
}

// foreignTable lists them for the page.
func foreignTable() string {
	var b strings.Builder
	b.WriteString("| annotation | instead |\n| --- | --- |\n")
	all := foreignAnnotations()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", key, all[key])
	}
	return b.String()
}
