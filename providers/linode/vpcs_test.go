package linode

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// TestNetworksMadeLater: a VPC or subnet that is missing is looked for again, at a bounded rate, and one that was made again
// is found under its new ID, all without a restart.
func TestNetworksMadeLater(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, map[string]string{"vpc-names": "cluster", "subnet-names": "later"}, nil)
	resolve := func() ([]subnet, error) { return w.loadBalancers.vpcs.resolve(t.Context(), networkMaxAge) }
	_, err := resolve()
	require.ErrorContains(t, err, `no VPC has the label "cluster"`)
	w.server.ResetCalls()
	for range 50 {
		_, err = resolve()
		require.Error(t, err)
	}
	assert.LessOrEqual(t, w.server.Calls().Total, 1, "a miss is remembered for a moment")

	w.loadBalancers.vpcs.missMaxAge = 0 // the moment passes
	vpcID, _ := w.sim.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"})
	_, err = resolve()
	require.ErrorContains(t, err, `no VPC of the cluster has a subnet "later"`)
	subnetID := w.sim.AddSubnet(vpcID, "later", "10.1.0.0/16")
	own, err := resolve()
	require.NoError(t, err)
	assert.Equal(t, []subnet{{vpcID: vpcID, id: subnetID, ipv4: "10.1.0.0/16"}}, own)
	w.server.ResetCalls()
	_, err = resolve()
	require.NoError(t, err)
	assert.Zero(t, w.server.Calls().Total, "what was found is remembered")

	// Both are made again behind our back: the first question about a Linode in it finds out.
	w.sim.RemoveVPC(vpcID)
	_, ids := w.sim.AddVPC("cluster", [2]string{"later", "10.1.0.0/16"})
	w.sim.AddLinode(linodesim.Spec{Label: "worker", SubnetID: ids[0]})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	var m error
	for range 4 { // a listing that meets the VPC that is gone fails, and the next one looks for it
		if _, m = w.instances.InstanceMetadata(t.Context(), node); m == nil {
			break
		}
	}
	require.NoError(t, m)
	l, err := w.instances.Find(t.Context(), node, inventory.Query{MaxAge: nodes.SweepMaxAge})
	require.NoError(t, err)
	require.NotNil(t, l.vpc)
	assert.NotEmpty(t, l.vpc.ipv4)
}

// TestSubnetMadeAnew: a subnet with the same label and another ID is found once a Linode seems to have no address in it.
func TestSubnetMadeAnew(t *testing.T) {
	t.Parallel()
	var vpcID int
	w := newTestWorld(t, map[string]string{"vpc-names": "cluster"}, func(s *linodesim.Sim) {
		vpcID, _ = s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"})
	})
	_, err := w.loadBalancers.vpcs.resolve(t.Context(), networkMaxAge)
	require.NoError(t, err)
	w.loadBalancers.vpcs.missMaxAge = 0 // a moment passes
	w.sim.RemoveSubnets(vpcID)
	w.sim.AddLinode(linodesim.Spec{Label: "worker", SubnetID: w.sim.AddSubnet(vpcID, "default", "10.0.0.0/16")})
	_, err = w.instances.InstanceMetadata(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	require.NoError(t, err)
}

// TestAddressesThatMove: routes that are made while the addresses of a VPC are listed move addresses from page to page. None is lost, and
// none is there twice.
func TestAddressesThatMove(t *testing.T) {
	t.Parallel()
	const n, atOnce = 2*pageSize + 100, 50
	w := newTestWorld(t, map[string]string{"vpc-names": "cluster", "enable-route-controller": "true"}, func(s *linodesim.Sim) {
		_, subnets := s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"})
		for i := range n {
			s.AddLinode(linodesim.Spec{Label: fmt.Sprintf("n-%d", i), SubnetID: subnets[0]})
		}
	})
	before, pages, err := listInstances(t.Context(), w.api, w.loadBalancers.vpcs, "")
	require.NoError(t, err)
	require.Equal(t, 9, pages, "Linodes, addresses, IPv6 addresses")
	require.Len(t, before, n)

	listed := w.api
	third, readings := make(chan struct{}), atomic.Int32{}
	answered := sync.OnceFunc(func() { close(third) })
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		number := r.URL.Query().Get("page")
		if path.Base(r.URL.Path) != "ips" || number == "1" {
			w.server.ServeHTTP(rw, r)
			return
		}
		if number == "2" { // before it is answered, many addresses move to page 3 and beyond
			reading := int(readings.Add(1))
			if reading == 1 {
				<-third
			}
			for i, l := range before[reading*atOnce : (reading+1)*atOnce] {
				assert.NoError(t, listed.setRanges(r.Context(), l, []string{fmt.Sprintf("10.77.%d.%d/32", reading, i)}))
			}
		}
		w.server.ServeHTTP(rw, r)
		if number == "3" {
			answered()
		}
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	w.restart()
	all, _, err := listInstances(t.Context(), w.api, w.loadBalancers.vpcs, "")
	require.NoError(t, err)
	require.Len(t, all, n)
	for _, l := range all {
		require.NotNil(t, l.vpc, l.label)
		assert.Len(t, l.vpc.ipv4, 1, l.label)
		assert.LessOrEqual(t, len(l.vpc.ranges), 1, l.label)
	}
	assert.EqualValues(t, 2, readings.Load())
}

// TestNodesInTwoSubnets: backends are in the subnet of their address, and NodeBalancers reach them from the first subnet that is named,
// whatever order the API shows.
func TestNodesInTwoSubnets(t *testing.T) {
	t.Parallel()
	for i, names := range []string{"default,spare", "spare,default"} {
		var subnets []int
		w := newTestWorld(t, map[string]string{"vpc-names": "cluster", "subnet-names": names}, func(s *linodesim.Sim) {
			_, subnets = s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"}, [2]string{"spare", "10.1.0.0/16"})
		})
		own, err := w.loadBalancers.vpcs.resolve(t.Context(), networkMaxAge)
		require.NoError(t, err)
		assert.Equal(t, subnets[i], own[0].id, names)
		w.addNode(linodesim.Spec{Label: "worker-1", SubnetID: subnets[0], Private: true})
		w.addNode(linodesim.Spec{Label: "worker-2", SubnetID: subnets[1], Private: true})
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		got := map[string]int{}
		for _, n := range w.sim.NodeBalancers()[0].Configs()[0].Nodes() {
			got[n.Label] = *n.VPCConfigID
		}
		assert.Equal(t, map[string]int{"worker-1": subnets[0], "worker-2": subnets[1]}, got, names)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
	}
}
