package linode

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// portableCases are values of portable annotations that the simulated cloud has, and what goes with them.
func portableCases(t testing.TB, sim *linodesim.Sim) map[string]conformance.PortableCase {
	prepared := func(prepare func(kube clientset.Interface) conformance.PortableCase) conformance.PortableCase {
		return conformance.PortableCase{Prepare: prepare}
	}
	inVPC := func(make func(front, back string) conformance.PortableCase) conformance.PortableCase {
		return prepared(func(clientset.Interface) conformance.PortableCase {
			_, subnets := sim.AddVPC("inner", [2]string{"front", "10.7.1.0/24"}, [2]string{"back", "10.7.2.0/24"})
			sim.AddVPC("outer", [2]string{"front", "10.8.1.0/24"})
			return make(strconv.Itoa(subnets[0]), strconv.Itoa(subnets[1]))
		})
	}
	withSecret := func(c conformance.PortableCase) conformance.PortableCase {
		return prepared(func(kube clientset.Interface) conformance.PortableCase {
			_, err := kube.CoreV1().Secrets("default").Create(t.Context(), newSecret(t, "web", 1), metav1.CreateOptions{})
			require.NoError(t, err)
			return c
		})
	}
	return map[string]conformance.PortableCase{
		portable.Scheme: inVPC(func(front, _ string) conformance.PortableCase {
			return conformance.PortableCase{With: map[string]string{portable.Subnet: front}}
		}),
		portable.Subnet: inVPC(func(front, back string) conformance.PortableCase {
			internal := map[string]string{portable.Scheme: portable.SchemeInternal}
			return conformance.PortableCase{Value: front, With: internal, Without: map[string]string{
				portable.Scheme: portable.SchemeInternal, portable.Subnet: back,
			}}
		}),
		portable.Network: inVPC(func(string, string) conformance.PortableCase {
			return conformance.PortableCase{
				Value: "inner", With: map[string]string{portable.Scheme: portable.SchemeInternal, portable.Subnet: "front"},
				Without: map[string]string{portable.Scheme: portable.SchemeInternal, portable.Subnet: "front", portable.Network: "outer"},
			}
		}),
		portable.SecurityGroups: prepared(func(clientset.Interface) conformance.PortableCase {
			return conformance.PortableCase{Value: strconv.Itoa(sim.AddFirewall("web"))}
		}),
		portable.Address:     {Value: reservedIP},
		portable.Certificate: withSecret(conformance.PortableCase{Value: "secret:web"}),
		portable.TLSPorts:    withSecret(conformance.PortableCase{With: map[string]string{portable.Certificate: "secret:web"}}),
		portable.CheckPort:   {Seen: func() string { return nodePortsChecked(sim) }},
	}
}

// nodePortsChecked says where a NodeBalancer does not check the node ports, which are the ports of its nodes.
func nodePortsChecked(sim *linodesim.Sim) string {
	ports := 0
	for _, nb := range sim.NodeBalancers() {
		for _, c := range nb.Configs() {
			want := map[int]string{80: ":30080", 443: ":30443"}[c.Port]
			if c.Check != checkConnection || len(c.Nodes()) == 0 || slices.ContainsFunc(c.Nodes(), func(n linodesim.Node) bool {
				return !strings.HasSuffix(n.Address, want)
			}) {
				return fmt.Sprintf("port %d has the check %s at %v", c.Port, c.Check, c.Nodes())
			}
			ports++
		}
	}
	if ports != 2 {
		return fmt.Sprintf("there are %d ports", ports)
	}
	return ""
}
