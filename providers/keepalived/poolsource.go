package keepalived

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// poolSource reads the ConfigMap of pools, and remembers it until a watch says that it changed.
type poolSource struct {
	namespace, name, cidr string

	mu     sync.Mutex
	client kubernetes.Interface
	known  map[string]string
	fresh  bool
	// version counts what made it old, so that an answer that was asked for before is not kept.
	version int
	asked   time.Time
	// watched reports whether a watch tells of changes; nil where none does yet.
	watched func() bool
}

func (p *poolSource) setClient(client kubernetes.Interface) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client = client
}

// follow notes that a watch tells of changes once it has synced.
func (p *poolSource) follow(synced func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched, p.fresh = synced, false
}

// changed has the ConfigMap read again.
func (p *poolSource) changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = false
	p.version++
}

// read returns the pools. What cannot be read is an error for those alone who need an address.
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
