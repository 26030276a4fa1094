package gce

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
)

// labelCluster holds the cluster's identity on forwarding rules of this program. Google's own controller has no such mark.
const labelCluster = "anyccm-cluster"

// loadBalancerName names a Service's forwarding rule and most of its other objects.
func loadBalancerName(_ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// Names of the objects of a load balancer, and of those that a cluster's load balancers share. The shared health checks of external and of
// internal load balancers have the same name, in different collections.
func firewallName(lb string) string     { return "k8s-fw-" + lb }
func denyFirewallName(lb string) string { return firewallName(lb) + "-deny" }
func nextPoolName(lb string) string     { return lb + "-next" }
func sharedCheckName(cluster string) string {
	return "k8s-" + cluster + "-node"
}

func ownCheckFirewallName(lb string, internal bool) string {
	if internal {
		return lb + "-hc"
	}
	return "k8s-" + lb + "-http-hc"
}

func sharedCheckFirewallName(cluster string, internal bool) string {
	if internal {
		return sharedCheckName(cluster) + "-hc"
	}
	return sharedCheckName(cluster) + "-http-hc"
}

// ownFirewallNames are the names of all firewall rules of a load balancer's own.
func ownFirewallNames(lb string) []string {
	return []string{firewallName(lb), denyFirewallName(lb), ownCheckFirewallName(lb, false), ownCheckFirewallName(lb, true)}
}

// groupName names the instance groups. With an empty ID the trailing dashes are removed.
func groupName(cluster string) string {
	if cluster == "" {
		return "k8s-ig"
	}
	return "k8s-ig--" + cluster
}

// Descriptions, byte for byte as Google's own controller writes them.
func serviceDescription(name string) string {
	return fmt.Sprintf(`{"kubernetes.io/service-name":%q}`, name)
}

func firewallDescription(name, ip string) string {
	return fmt.Sprintf(`{"kubernetes.io/service-name":%q, "kubernetes.io/service-ip":%q}`, name, ip)
}

func clusterDescription(cluster string) string {
	return fmt.Sprintf(`{"kubernetes.io/cluster-id":%q}`, cluster)
}

func fullName(s *v1.Service) string { return s.Namespace + "/" + s.Name }

const (
	idConfigMap   = "ingress-uid"
	idKey         = "uid"
	idProviderKey = "provider-uid"
)

// identity provides the ID in the names of the cluster's shared objects. Ingress controllers use it as well.
type identity struct {
	ownership.Cluster

	mu   sync.Mutex
	kube kubernetes.Interface
	id   *string
}

func (i *identity) setClient(kube kubernetes.Interface) {
	i.SetClient(kube)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kube = kube
}

// clusterID returns the ID, or with create makes one that the API server confirms to be missing. The key of Google's own controllers has
// precedence even if empty, because they use it in names.
func (i *identity) clusterID(ctx context.Context, create bool) (id string, known bool, err error) {
	i.mu.Lock()
	kube, read := i.kube, i.id
	i.mu.Unlock()
	if read != nil {
		return *read, true, nil
	}
	if kube == nil {
		return "", false, nil
	}
	maps := kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	m, err := maps.Get(ctx, idConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if !create {
			return "", false, nil
		}
		if m, err = maps.Create(ctx, newIdentity(), metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			m, err = maps.Get(ctx, idConfigMap, metav1.GetOptions{})
		}
	}
	if err != nil {
		return "", false, fmt.Errorf("reading the ID of the cluster, which is in the ConfigMap %s/%s (grant get and create on it): %w",
			metav1.NamespaceSystem, idConfigMap, err)
	}
	if _, ok := m.Data[idKey]; !ok {
		return "", false, fmt.Errorf("the ConfigMap %s/%s has no key %q; it names what the clusters of a project share, so do not invent one if load balancers exist",
			metav1.NamespaceSystem, idConfigMap, idKey)
	}
	id = m.Data[idKey]
	if own, ok := m.Data[idProviderKey]; ok {
		id = own
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id = &id
	return id, true, nil
}

func newIdentity() *v1.ConfigMap {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails
	id := hex.EncodeToString(random)
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: idConfigMap},
		Data:       map[string]string{idKey: id, idProviderKey: id},
	}
}
