package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
)

const (
	partNodes = "nodes"
	// clonedMachine joins in the steps, lastMachine while vCenter is away; deletedMachine is deleted.
	clonedMachine, lastMachine, deletedMachine = "node-5", "node-6", "node-4"
	// taintShutdown is set by the framework on a Node whose machine is powered off.
	taintShutdown = "node.cloudprovider.kubernetes.io/shutdown"
)

// try implements services.
func (v *vcsim) try(ctx context.Context, r *run) error {
	if r.wants("steps") {
		if err := v.steps(ctx, r); err != nil {
			return err
		}
	}
	if r.wants("outages") {
		return v.tryOutage(ctx, r)
	}
	return nil
}

// steps puts virtual machines through their lifecycle.
func (v *vcsim) steps(ctx context.Context, r *run) error {
	if err := v.shown(ctx, r, "the Nodes have the UUIDs, addresses, zones and regions that vCenter shows", v.names); err != nil {
		return err
	}
	if err := v.clone(ctx, clonedMachine, virtualMachines); err != nil {
		return err
	}
	t := results.Trial{Part: partNodes, Name: "the Node of a virtual machine that was cloned just now is initialised"}
	if err := r.measure(ctx, t, func(ctx context.Context) error {
		return r.cluster.RegisterNode(ctx, harness.NodeSpec{Name: clonedMachine, Ready: true})
	}, func(ctx context.Context) error { return r.initialised(ctx, clonedMachine) }); err != nil {
		return err
	}
	if err := v.power(ctx, r); err != nil {
		return err
	}
	texts, err := r.warnings(ctx)
	if err != nil {
		return err
	}
	t = results.Trial{Part: partNodes, Name: "no Warning event", Result: results.Held, Details: texts}
	if len(texts) > 0 {
		t.Result = results.Failed
	}
	r.note(t)
	return v.deletion(ctx, r)
}

// initialised is nil for a Node that has everything.
func (r *run) initialised(ctx context.Context, name string) error {
	n, err := r.cluster.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err == nil && !harness.Initialized(n) {
		err = errors.New("it is not initialised")
	}
	return err
}

// shown compares Nodes with what vCenter shows of their virtual machines.
func (v *vcsim) shown(ctx context.Context, r *run, name string, nodes []string) error {
	began := time.Now()
	machines, err := v.machines(ctx)
	if err != nil {
		return err
	}
	zones := map[string]string{}
	for ref, zone := range v.zones {
		zones[ref.Value] = zone
	}
	t := results.Trial{Part: partNodes, Name: name, Result: results.Held}
	seen := map[string]bool{}
	for _, node := range nodes {
		n, err := r.cluster.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading node %s: %w", node, err)
		}
		m := machines[node]
		have := []string{n.Spec.ProviderID, internalIP(n), n.Labels[v1.LabelTopologyZone], n.Labels[v1.LabelTopologyRegion]}
		want := []string{"vsphere://" + m.uuid, m.address, zones[m.host], vcsimRegion}
		seen[zones[m.host]] = true
		if !slices.Equal(have, want) {
			t.Result, t.Details = results.Failed, append(t.Details, fmt.Sprintf("node %s has %v instead of %v", node, have, want))
		}
	}
	t.Seconds = time.Since(began).Seconds()
	if t.Result == results.Held {
		t.Details = []string{"zones " + strings.Join(slices.Sorted(maps.Keys(seen)), ", ")}
	}
	r.note(t)
	return nil
}

func internalIP(n *v1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// power switches a virtual machine off and on: its Node stays, and says so meanwhile.
func (v *vcsim) power(ctx context.Context, r *run) error {
	const name = "node-3"
	vm, err := v.vm(ctx, name)
	if err != nil {
		return err
	}
	tainted := func(want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			n, err := r.cluster.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == taintShutdown }) != want {
				return fmt.Errorf("its taints are %v", n.Spec.Taints)
			}
			return nil
		}
	}
	off := results.Trial{Part: partNodes, Name: "the Node of a virtual machine that was powered off stays, and has the taint of a shutdown"}
	if err := r.measure(ctx, off, func(ctx context.Context) error {
		task, err := vm.PowerOff(ctx)
		if err := waitForTask(ctx, task, err); err != nil {
			return fmt.Errorf("powering %s off: %w", name, err)
		}
		return r.cluster.SetReady(ctx, name, false)
	}, tainted(true)); err != nil {
		return err
	}
	on := results.Trial{Part: partNodes, Name: "the taint goes once it runs again"}
	return r.measure(ctx, on, func(ctx context.Context) error {
		task, err := vm.PowerOn(ctx)
		if err := waitForTask(ctx, task, err); err != nil {
			return fmt.Errorf("powering %s on: %w", name, err)
		}
		return r.cluster.SetReady(ctx, name, true)
	}, tainted(false))
}

// deletion deletes a virtual machine: its Node goes, and no other one.
func (v *vcsim) deletion(ctx context.Context, r *run) error {
	vm, err := v.vm(ctx, deletedMachine)
	if err != nil {
		return err
	}
	before, err := r.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	t, err := r.measured(ctx, results.Trial{Part: partNodes, Name: "the Node of a virtual machine that was deleted goes, and no other one"},
		func(ctx context.Context) error {
			task, err := vm.PowerOff(ctx)
			if err := waitForTask(ctx, task, err); err != nil {
				return fmt.Errorf("powering %s off: %w", deletedMachine, err)
			}
			task, err = vm.Destroy(ctx)
			if err := waitForTask(ctx, task, err); err != nil {
				return fmt.Errorf("deleting %s: %w", deletedMachine, err)
			}
			return r.cluster.SetReady(ctx, deletedMachine, false)
		}, func(ctx context.Context) error {
			_, err := r.cluster.Kube.CoreV1().Nodes().Get(ctx, deletedMachine, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is still there"))
		})
	if err != nil {
		return err
	}
	after, err := r.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if len(after.Items) != len(before.Items)-1 {
		t.Result, t.Details = results.Failed, append(t.Details, fmt.Sprintf("%d of %d Nodes are left", len(after.Items), len(before.Items)))
	}
	r.note(t)
	return nil
}

// tryOutage: while vCenter is away a node is not ready, and one joins. It comes back without its sessions. No Node is deleted,
// and the new one is initialised afterwards.
func (v *vcsim) tryOutage(ctx context.Context, r *run) error {
	const silent = "node-2"
	if err := v.clone(ctx, lastMachine, virtualMachines+1); err != nil {
		return err
	}
	before, err := r.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if _, err := v.endSessions(ctx); err != nil {
		return err
	}
	if err := v.server.Close(); err != nil {
		return fmt.Errorf("ending vcsim: %w", err)
	}
	r.say("         vCenter is away")
	if err := errors.Join(
		r.cluster.SetReady(ctx, silent, false), r.cluster.RegisterNode(ctx, harness.NodeSpec{Name: lastMachine, Ready: true}), pause(ctx, outage),
	); err != nil {
		return err
	}
	if err := v.open(ctx); err != nil {
		return err
	}
	r.say("         vCenter answers")
	began := time.Now()
	resume := results.Trial{Part: partOutages, Name: "vCenter: the node that waits is initialised", MaxSeconds: resumed.Seconds()}
	failure := soon(ctx, "node "+lastMachine, func(ctx context.Context) error { return r.initialised(ctx, lastMachine) })
	resume.Seconds = time.Since(began).Seconds()
	resume.Judge()
	if failure != nil {
		resume.Result, resume.Details = results.Failed, []string{failure.Error()}
	}
	r.note(resume)
	if err := pause(ctx, outage); err != nil { // the Node of a virtual machine that was deleted goes sooner
		return err
	}
	lost := results.Trial{Part: partOutages, Name: "vCenter: no Node is lost", Result: results.Held}
	after, err := r.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if len(after.Items) != len(before.Items)+1 {
		lost.Result, lost.Details = results.Failed, []string{fmt.Sprintf("there are %d Nodes, and there were %d", len(after.Items), len(before.Items))}
	}
	lost.Seconds = time.Since(began).Seconds()
	r.note(lost)
	return r.cluster.SetReady(ctx, silent, true)
}

// lacks finds out what vcsim does not have.
func (v *vcsim) lacks(ctx context.Context) ([]results.Lack, error) {
	var all []results.Lack
	for _, one := range []struct {
		what, effect string
		try          func(context.Context) (string, error)
	}{
		{"NSX", "load balancers and routes", v.probeNSX},
		{"users whose rights are limited", "virtual machines that the account may not read", v.probeRights},
		{"passwords that are refused", "credentials that are wrong or have expired", v.probeLogin},
		{"UUIDs in any case, as vCenter compares them", "provider IDs in upper case", v.probeCase},
		{"guests that end with their virtual machine", "addresses of virtual machines that are powered off", v.probeGuest},
	} {
		shows, err := one.try(ctx)
		if err != nil {
			return nil, fmt.Errorf("finding out whether vcsim has %s: %w", one.what, err)
		}
		if shows != "" {
			all = append(all, results.Lack{What: one.what, Shows: shows, Effect: one.effect})
		}
	}
	return all, nil
}

// probeNSX asks for the gateways of NSX's policy API.
func (v *vcsim) probeNSX(ctx context.Context) (string, error) {
	trusting := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // its own certificate
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
	defer client.CloseIdleConnections()
	const path = "/policy/api/v1/infra/tier-1s"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+v.url.Host+path, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("asking vcsim: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking vcsim: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotFound {
		return fmt.Sprintf("%s answers with HTTP %d", path, answer.StatusCode), nil
	}
	return "", nil
}

// probeRights asks for the rights of a user that does not exist.
func (v *vcsim) probeRights(ctx context.Context) (string, error) {
	const nobody, right = "nobody", "VirtualMachine.Interact.PowerOff"
	told, err := methods.HasUserPrivilegeOnEntities(ctx, v.client, &types.HasUserPrivilegeOnEntities{
		This: *v.client.ServiceContent.AuthorizationManager, Entities: []types.ManagedObjectReference{v.client.ServiceContent.RootFolder},
		UserName: nobody, PrivId: []string{right},
	})
	if err != nil {
		return "", fmt.Errorf("asking for rights: %w", err)
	}
	for _, entity := range told.Returnval {
		for _, one := range entity.PrivAvailability {
			if one.IsGranted {
				return fmt.Sprintf("the user %s, who does not exist, has the right %s", nobody, right), nil
			}
		}
	}
	return "", nil
}

// probeCase searches for a virtual machine by its UUID in upper case.
func (v *vcsim) probeCase(ctx context.Context) (string, error) {
	machines, err := v.machines(ctx)
	if err != nil {
		return "", err
	}
	index := object.NewSearchIndex(v.client.Client)
	found, err := index.FindAllByUuid(ctx, nil, strings.ToUpper(machines[v.names[0]].uuid), true, nil)
	if err != nil {
		return "", fmt.Errorf("searching by UUID: %w", err)
	}
	if len(found) == 0 {
		return "a search for a UUID in upper case finds nothing", nil
	}
	return "", nil
}

// probeGuest powers a virtual machine off for a moment, and looks whether its guest still reports an address.
func (v *vcsim) probeGuest(ctx context.Context) (string, error) {
	name := v.names[0]
	vm, err := v.vm(ctx, name)
	if err != nil {
		return "", err
	}
	task, err := vm.PowerOff(ctx)
	if err := waitForTask(ctx, task, err); err != nil {
		return "", fmt.Errorf("powering %s off: %w", name, err)
	}
	machines, err := v.machines(ctx)
	if err != nil {
		return "", err
	}
	task, err = vm.PowerOn(ctx)
	if err := waitForTask(ctx, task, err); err != nil {
		return "", fmt.Errorf("powering %s on: %w", name, err)
	}
	if address := machines[name].address; address != "" {
		return "a virtual machine that is powered off reports the address " + address, nil
	}
	return "", nil
}

// probeLogin logs in with a wrong password.
func (v *vcsim) probeLogin(ctx context.Context) (string, error) {
	u := *v.url
	u.User = url.UserPassword(vcsimUser, "wrong")
	if _, err := govmomi.NewClient(ctx, &u, true); err != nil {
		return "", nil //nolint:nilerr // the refusal is what vCenter does as well
	}
	return "a wrong password is taken", nil
}
