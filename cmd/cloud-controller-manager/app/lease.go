package app

import (
	"context"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
)

// handBackTimeout bounds the release, because a pod being stopped has little time.
const handBackTimeout = 3 * time.Second

// lease releases leadership at shutdown. The framework does not, so that the next replica would wait 17 seconds until the lease expires.
type lease struct {
	mu        sync.Mutex
	config    *rest.Config
	namespace string
	name      string
	enabled   bool
	// holder is our identity, known once we lead.
	holder string
}

// watch records the lease's location.
func (l *lease) watch(c *config.CompletedConfig) {
	election := c.ComponentConfig.Generic.LeaderElection
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config, l.namespace, l.name, l.enabled = c.Kubeconfig, election.ResourceNamespace, election.ResourceName, election.LeaderElect
}

// readHolder reads the lease's holder when our controllers start, because then it is us. The framework does not disclose its identity, and
// another replica may run on the same host.
func (l *lease) readHolder(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.enabled {
		return
	}
	client, err := kubernetes.NewForConfig(l.config)
	if err != nil {
		klog.ErrorS(err, "The lease will not be handed back on exit")
		return
	}
	current, err := client.CoordinationV1().Leases(l.namespace).Get(ctx, l.name, metav1.GetOptions{})
	if err != nil || current.Spec.HolderIdentity == nil {
		klog.ErrorS(err, "The lease will not be handed back on exit", "lease", klog.KRef(l.namespace, l.name))
		return
	}
	l.holder = *current.Spec.HolderIdentity
}

// release clears the lease if it is ours, and ends the process before the framework renews it.
func (l *lease) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handBackTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(l.config)
	if err != nil {
		return
	}
	leases := client.CoordinationV1().Leases(l.namespace)
	for ctx.Err() == nil {
		current, err := leases.Get(ctx, l.name, metav1.GetOptions{})
		if err != nil || current.Spec.HolderIdentity == nil || *current.Spec.HolderIdentity != l.holder {
			break
		}
		nobody, second := "", int32(1)
		current.Spec.HolderIdentity, current.Spec.LeaseDurationSeconds = &nobody, &second
		if _, err := leases.Update(ctx, current, metav1.UpdateOptions{}); err == nil {
			klog.InfoS("Handed the lease back", "lease", klog.KRef(l.namespace, l.name))
			break
		}
	}
	exitProcess(0)
}

// exitProcess flushes the log and ends the process.
func exitProcess(code int) {
	logs.FlushLogs()
	os.Exit(code)
}
