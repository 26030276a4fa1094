package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// verdictMaxAge is how long a positive verdict is used: names and tags rarely change.
	verdictMaxAge = 10 * time.Minute
	// refusalMaxAge is shorter, so that an added tag takes effect soon.
	refusalMaxAge = time.Minute
	// verifyAtOnce bounds the concurrent questions; one listing answers most of them.
	verifyAtOnce = 20
)

// verification excludes unverified Nodes from being backends and next hops. Without a verifier it accepts all.
type verification struct {
	inner   contract.InstanceVerifier
	reports *reports

	mu       sync.Mutex
	verdicts map[string]verdict
	swept    time.Time
}

type verdict struct {
	providerID string
	ok         bool
	why        string
	at         time.Time
}

func (v verdict) isFresh(now time.Time) bool {
	age := now.Sub(v.at)
	return age < refusalMaxAge || (v.ok && age < verdictMaxAge)
}

// newVerification returns a verification that calls the cloud if the policy demands it.
func newVerification(cloud any, p Policy, r *reports) *verification {
	v := &verification{reports: r, verdicts: map[string]verdict{}}
	if p.VerifyInstances {
		v.inner, _ = cloud.(contract.InstanceVerifier)
		if v.inner == nil {
			v.inner = refuseAll{} // Open refuses this combination; this is a second safeguard
		}
	}
	return v
}

// refuseAll is the verifier for a cloud without one.
type refuseAll struct{}

// VerifyInstance implements InstanceVerifier.
func (refuseAll) VerifyInstance(context.Context, *v1.Node) (ok bool, why string, err error) {
	return false, "this provider cannot verify instances", nil
}

// whyUnverified returns "" for a Node with a verified instance, else the reason.
func (v *verification) whyUnverified(ctx context.Context, node *v1.Node) (why string, err error) {
	switch {
	case v.inner == nil:
		return "", nil
	case node.Spec.ProviderID == "":
		return "it has no provider ID yet", nil
	}
	now := time.Now()
	v.mu.Lock()
	known, ok := v.verdicts[nodeKey(node)]
	v.mu.Unlock()
	ok = ok && known.providerID == node.Spec.ProviderID
	if ok && known.isFresh(now) {
		return known.why, nil
	}
	verified, why, err := v.ask(ctx, node)
	if err != nil && ok {
		return known.why, nil // the last verdict is kept while the cloud does not answer
	}
	if err != nil {
		return "", fmt.Errorf("verifying the instance of node %s: %w", node.Name, err)
	}
	if !verified && why == "" {
		why = "its instance is not known as a node of this cluster"
	}
	if verified {
		why = ""
	}
	v.record(node, verdict{providerID: node.Spec.ProviderID, ok: verified, why: why, at: now})
	return why, nil
}

func (v *verification) ask(ctx context.Context, node *v1.Node) (ok bool, why string, err error) {
	defer recoverPanic(&err, "VerifyInstance", node.Name)
	return v.inner.VerifyInstance(ctx, node)
}

func (v *verification) record(node *v1.Node, d verdict) {
	v.mu.Lock()
	v.verdicts[nodeKey(node)] = d
	if d.at.Sub(v.swept) > verdictMaxAge {
		v.swept = d.at
		maps.DeleteFunc(v.verdicts, func(_ string, old verdict) bool { return d.at.Sub(old.at) > 2*verdictMaxAge })
	}
	v.mu.Unlock()
	if !d.ok {
		v.reports.warnOfNode(node, EventNodeInstanceNotVerified, "the Node does not become a backend of load balancers and gets no route (--verify-node-instances): "+d.why)
	}
}

// filterVerified returns the Nodes whose instances are verified, in their order.
func (v *verification) filterVerified(ctx context.Context, nodes []*v1.Node) ([]*v1.Node, error) {
	if v.inner == nil {
		return nodes, nil
	}
	reasons, failures := make([]string, len(nodes)), make([]error, len(nodes))
	var group sync.WaitGroup
	slots := make(chan struct{}, verifyAtOnce)
	for i, node := range nodes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			reasons[i], failures[i] = v.whyUnverified(ctx, node)
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	var passed []*v1.Node
	for i, node := range nodes {
		if reasons[i] == "" {
			passed = append(passed, node)
		}
	}
	return passed, nil
}
