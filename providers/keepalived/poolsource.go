package keepalived

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// poolSource caches the ConfigMap of pools until a watch reports a change.
type poolSource struct {
	namespace, name, cidr string

	mu     sync.Mutex
	client kubernetes.Interface
	known  map[string]string
	fresh  bool
	// version counts invalidations, so that an older response is not cached.
	version int
	asked   time.Time
	// watched reports whether a watch reports changes; nil without a watch.
	watched func() bool
}

func (p *poolSource) setClient(client kubernetes.Interface) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client = client
}

// follow starts to trust the watch once it has synced.
func (p *poolSource) follow(synced func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched, p.fresh = synced, false
}

// invalidate invalidates the cache.
func (p *poolSource) invalidate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = false
	p.version++
}

// read returns the pools. A failure affects only Services that need an address.
func (p *poolSource) read(ctx context.Context) pools {
	all := pools{where: p.namespace + "/" + p.name, cidr: p.cidr}
	p.mu.Lock()
	client, known, version := p.client, p.known, p.version
	fresh := p.fresh && ((p.watched != nil && p.watched()) || time.Since(p.asked) < unwatchedMaxAge)
	p.mu.Unlock()
	if fresh || client == nil {
		all.data = known
		return all
	}
	cm, err := client.CoreV1().ConfigMaps(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		all.err = kubeError(err, "reading ConfigMap "+all.where+", which has the pools")
		return all
	default:
		all.data = cm.Data
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.version == version {
		p.known, p.fresh, p.asked = all.data, true, time.Now()
	}
	return all
}
