package oci

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// tryNetworkLoadBalancers adds what the suite tries of network load balancers.
func tryNetworkLoadBalancers(sim *ocisim.Sim, f *conformance.Fixture) {
	f.Services["network"] = conformance.Case{
		Service: conformance.Service("network", ofNetwork(annotationRuleMode, "SL-All"), web()),
		Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, udp(53, 30053)) },
	}
	rich := dual(local(conformance.Service("richnetwork", ofNetwork(
		nlbSubnet, ocisim.DualSubnet(), nlbGroups, ocisim.GroupID(1),
		annotationRuleMode, modeGroups, annotationBackGroups, ocisim.GroupID(3),
		nlbRetries, "4", nlbInterval, "20000", nlbTimeout, "2000",
		nlbPolicy, threeTuple, nlbPPv2, "true", nlbNewFreeform, `{"team":"a"}`, nlbPrivateIPv4, "10.0.194.9", nlbIPv6, "2603:c020:0:5::9",
	), web(), conformance.Port("https", 443, 30443), conformance.Port("dns", 53, 30053))), v1.IPFamilyPolicyPreferDualStack)
	f.UDP = conformance.FeatureCase{Prepare: sim.OpenByHand, With: map[string]string{annotationType: typeNLB}, Shows: `"protocol":"UDP"`}
	f.Services["richnetwork"] = conformance.Case{
		Service: rich,
		Change: func(s *v1.Service) {
			s.Annotations[nlbPPv2], s.Annotations[nlbPolicy], s.Annotations[nlbGroups] = "false", twoTuple, ocisim.GroupID(2)
			s.Spec.Ports = []v1.ServicePort{s.Spec.Ports[0], s.Spec.Ports[2], udp(53, 30053)}
		},
	}
}

// networkSnapshot is all that is there of network load balancers, in an order of its own.
func networkSnapshot(t testing.TB, sim *ocisim.Sim) (all []string) {
	t.Helper()
	for _, lb := range sim.NetworkLoadBalancers() {
		for _, l := range follow(lb.Doc, "listeners") {
			for field, usual := range map[string]any{"tcpIdleTimeout": 360.0, "udpIdleTimeout": 120.0, "isPpv2Enabled": false} {
				dropUsual(l.(document), field, usual)
			}
		}
		for _, set := range follow(lb.Doc, "backendSets") {
			for field, usual := range map[string]any{
				"isFailOpen": false, "isInstantFailoverEnabled": false, "isInstantFailoverTcpResetEnabled": true, "areOperationallyActiveBackendsPreferred": false,
			} {
				dropUsual(set.(document), field, usual)
			}
			for _, b := range set.(document)["backends"].([]any) {
				for _, flag := range []string{"isBackup", "isDrain", "isOffline"} {
					dropUsual(b.(document), flag, false)
				}
				b.(document)["targetId"] = b.(document)["targetId"] != nil // which differs from run to run
			}
			slices.SortFunc(set.(document)["backends"].([]any), func(a, b any) int { return strings.Compare(backendKey(a), backendKey(b)) })
		}
		text, err := json.Marshal(lb.Doc)
		require.NoError(t, err)
		all = append(all, lb.Name+" "+string(text)+"\n")
	}
	return all
}

// dropUsual leaves out what the cloud fills in.
func dropUsual(d document, field string, usual any) {
	if d[field] == usual {
		delete(d, field)
	}
}
