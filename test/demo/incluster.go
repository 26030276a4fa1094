package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// joinReady registers nodes as kubelet does where there is no cloud: complete, with their addresses.
func (d *demo) joinReady(ctx context.Context) error {
	d.step("%d nodes register as kubelet does without a cloud: with their addresses, and without the taint", d.nodes)
	for i := range d.nodes {
		name := fmt.Sprintf("node-%d", i+1)
		spec := harness.NodeSpec{Name: name, Ready: true, Initialized: true, Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)}
		if err := d.cluster.RegisterNode(ctx, spec); err != nil {
			return err
		}
		d.tell("%-9s %s", name, spec.Address)
	}
	return nil
}

// serveInCluster creates two Services and shows their addresses, and the objects of the cluster in which they are recorded.
func (d *demo) serveInCluster(ctx context.Context) error {
	d.step("Two Services of type LoadBalancer")
	var addresses []string
	for _, name := range []string{"web", "api"} {
		if _, err := d.cluster.CreateService(ctx, name, nil); err != nil {
			return err
		}
		address, err := d.cluster.WaitServed(ctx, name, patience)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, d.ccm.Tail(10))
		}
		if slices.Contains(addresses, address) {
			return fmt.Errorf("two Services have the address %s", address)
		}
		d.tell("Service %s is served at %s", name, address)
		addresses = append(addresses, address)
	}
	list, err := d.cluster.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing ConfigMaps: %w", err)
	}
	at := slices.IndexFunc(list.Items, func(cm v1.ConfigMap) bool {
		return strings.Contains(fmt.Sprint(cm.Annotations, cm.Data), addresses[0])
	})
	if at < 0 {
		return errors.New("the Services have addresses, but no ConfigMap of kube-system records them")
	}
	for key, text := range list.Items[at].Data {
		d.step("ConfigMap %s, key %s", list.Items[at].Name, key)
		for line := range strings.Lines(text) {
			d.tell("%s", strings.TrimSuffix(line, "\n"))
		}
	}
	return nil
}
