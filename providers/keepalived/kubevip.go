package keepalived

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file is about kube-vip, which reads the addresses from the Services, so these are the only record.

const (
	labelImplementation = "implementation"
	implementation      = "kube-vip"
	// labelOldAddress is the label that the first versions of kube-vip's own controller wrote.
	labelOldAddress = "ipam-address"
)

// marks holds the annotations and labels of a Service that kube-vip reads.
type marks struct {
	Addresses, Interface, LoadBalancerIP string
	// Labelled: the Service has the present label. OldLabel: it has the one of the first versions.
	Labelled, OldLabel bool
}

// annotatedAddresses returns the addresses in a Service's annotation.
func annotatedAddresses(s *v1.Service) []netip.Addr { return lenientList(s.Annotations[annotationIPs]) }

// splitRequest separates the request from the assigned address: the annotation and the field hold both. If they differ, the user changed
// the one that differs from the status.
func splitRequest(s *v1.Service, wants, has []netip.Addr) (asked, given []netip.Addr) {
	field := lenientList(s.Spec.LoadBalancerIP)
	if _, ours := s.Labels[labelImplementation]; !ours || len(has) == 0 {
		return wants, nil
	}
	if len(field) > 0 && !slices.Contains(has, field[0]) {
		if slices.Contains(statusAddresses(s), field[0]) {
			return has, nil
		}
		return field, nil
	}
	if slices.Equal(wants, has) {
		return nil, has
	}
	return wants, nil
}

// statusAddresses returns the addresses in the status of a Service.
func statusAddresses(s *v1.Service) (all []netip.Addr) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a := parseAddress(i.IP); a.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// marksOf returns the marks of a Service.
func marksOf(s *v1.Service) marks {
	_, old := s.Labels[labelOldAddress]
	return marks{
		Addresses: s.Annotations[annotationIPs], Interface: s.Annotations[annotationInterface], LoadBalancerIP: s.Spec.LoadBalancerIP,
		Labelled: s.Labels[labelImplementation] == implementation, OldLabel: old,
	}
}

// desiredMarks returns the desired marks. Equivalent existing ones stay.
func desiredMarks(s *v1.Service, _ settings, addresses []netip.Addr, networkInterface string) marks {
	m := marksOf(s)
	fresh := m.Addresses == "" && m.LoadBalancerIP == ""
	if !slices.Equal(annotatedAddresses(s), addresses) {
		m.Addresses = texts(addresses)
	}
	if fresh || m.LoadBalancerIP != "" && !slices.Contains(addresses, parseAddress(m.LoadBalancerIP)) {
		m.LoadBalancerIP = addresses[0].String()
	}
	if fresh && m.Interface == "" {
		m.Interface = networkInterface
	}
	m.OldLabel = m.OldLabel && s.Annotations[annotationIPs] != ""
	m.Labelled = true
	return m
}

// markChanges returns the changes of a Service's marks.
func (r *reconciler) markChanges(s *v1.Service, d desired) []services.Change[*observed] {
	before := marksOf(s)
	if before == d.written {
		return nil
	}
	action := contract.PlanChange
	if before.Addresses == "" {
		action = contract.PlanCreate
	}
	return []services.Change[*observed]{{
		Planned: contract.Planned{Action: action, Object: "marks of Service " + s.Namespace + "/" + s.Name, Detail: texts(d.addresses)},
		Compare: func() (any, any) {
			if action == contract.PlanCreate {
				return nil, d.written
			}
			return before, d.written
		},
		Make: r.mark,
	}}
}

// mark chooses free addresses and writes them on the Service. Two processes may do so concurrently: the later one sees the other's marks
// and removes its own, even those of an older Service, because the earlier one does not check again.
func (r *reconciler) mark(ctx context.Context, q *services.Request, _ *observed) (*observed, error) {
	select {
	case r.choosing <- struct{}{}:
		defer func() { <-r.choosing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for other Services that are given addresses: %w", ctx.Err())
	}
	all, err := r.cluster.Living(ctx)
	if err != nil {
		return nil, err
	}
	// The copy may be older than the framework's finalizer, and the API server refuses changes of old versions.
	at := slices.IndexFunc(all, func(s *v1.Service) bool { return s.UID == q.Service.UID })
	if at < 0 {
		return nil, fmt.Errorf("giving Service %s/%s an address: it is gone", q.Service.Namespace, q.Service.Name)
	}
	current := all[at]
	d, err := r.desire(ctx, r.translate(current), &observed{has: annotatedAddresses(current)}, all)
	if err != nil {
		return nil, r.reportLoss(q, err)
	}
	written, err := r.patch(ctx, current, marksOf(current), d.written)
	if err != nil {
		return nil, err
	}
	if all, err = r.cluster.Living(ctx); err != nil {
		return nil, err
	}
	w, err := r.newAllocator(ctx, record{}, all)
	if err != nil {
		return nil, err
	}
	u := w.usageWithout(written.UID)
	had := annotatedAddresses(current)
	for _, a := range slices.DeleteFunc(slices.Clone(d.addresses), func(a netip.Addr) bool { return slices.Contains(had, a) }) {
		rivals := slices.DeleteFunc(u.holdersWith(a), func(h holder) bool { return h.service == nil })
		if why := w.obstacle(written, a, usage{a: rivals}); why != "" && !a.IsUnspecified() {
			if _, err := r.patch(ctx, written, marksOf(written), marksOf(current)); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("address %s %s, which was faster; another one is chosen", a, why)
		}
	}
	q.Service = written
	return &observed{has: d.addresses}, nil
}

// markDeletions removes our marks from a Service that is no load balancer any more. A deleted Service needs no change.
func (r *reconciler) markDeletions(s *v1.Service) []services.Change[*observed] {
	if _, marked := s.Labels[labelImplementation]; !marked || s.DeletionTimestamp != nil {
		return nil
	}
	before := marksOf(s)
	return []services.Change[*observed]{{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "marks of Service " + s.Namespace + "/" + s.Name, Detail: before.Addresses},
		Compare: func() (any, any) { return before, nil },
		Make: func(ctx context.Context, q *services.Request, _ *observed) (*observed, error) {
			written, err := r.patch(ctx, q.Service, before, marks{})
			if err == nil {
				q.Service = written
				r.retryWaiting()
			}
			return &observed{}, err
		},
	}}
}

// patch writes the differences, for the version of the Service they were computed from.
func (r *reconciler) patch(ctx context.Context, s *v1.Service, before, after marks) (*v1.Service, error) {
	value := func(want string) any {
		if want == "" {
			return nil
		}
		return want
	}
	notes, tags, spec := map[string]any{}, map[string]any{}, map[string]any{}
	if before.Addresses != after.Addresses {
		notes[annotationIPs] = value(after.Addresses)
	}
	if before.Interface != after.Interface {
		notes[annotationInterface] = value(after.Interface)
	}
	if before.LoadBalancerIP != after.LoadBalancerIP {
		spec["loadBalancerIP"] = value(after.LoadBalancerIP)
	}
	if before.Labelled != after.Labelled {
		tags[labelImplementation] = nil
		if after.Labelled {
			tags[labelImplementation] = implementation
		}
	}
	if before.OldLabel && !after.OldLabel {
		tags[labelOldAddress] = nil
	}
	document := map[string]any{"metadata": map[string]any{"annotations": notes, "labels": tags, "resourceVersion": s.ResourceVersion}, "spec": spec}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("writing the marks of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	written, err := r.client().CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, text, metav1.PatchOptions{})
	if err != nil {
		return nil, kubeError(err, "writing the address of Service "+s.Namespace+"/"+s.Name)
	}
	return written, nil
}
