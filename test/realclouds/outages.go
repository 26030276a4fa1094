package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
)

const (
	partOutages = "outages of 30 s"
	// doomed is the Service that is deleted while a service is away, late the one that is made meanwhile.
	doomed, late = "doomed", "late"
)

// stopDuring ends a service, has something done meanwhile, and starts it again. It returns when the service answers.
func (o *openStack) stopDuring(ctx context.Context, r *run, service, address string, meanwhile func(context.Context) error) error {
	starting := make(chan error, 1)
	o.up = starting
	if _, err := command(ctx, o.folder, "bash", "-c", ". ./env.sh; stop "+service); err != nil {
		starting <- nil
		return err
	}
	r.say("         %s is away", service)
	began := time.Now()
	err := meanwhile(ctx)
	if err == nil {
		err = pause(ctx, outage-time.Since(began))
	}
	go func() { // up.sh looks at every service before it returns; ours answers long before that
		_, err := command(context.WithoutCancel(ctx), o.folder, "./up.sh")
		starting <- err
	}()
	if err == nil {
		err = soon(ctx, service+" to answer", func(ctx context.Context) error { return reachable(ctx, address) })
		r.say("         %s answers after %.0f s", service, time.Since(began).Seconds())
	}
	return err
}

// upAgain waits until the script that has started a service has ended.
func (o *openStack) upAgain() error { return <-o.up }

// octaviaAway: while Octavia is away a Service is deleted, one is made and one is changed. The Services stay, and
// afterwards all of that is done.
func (o *openStack) octaviaAway(ctx context.Context, r *run) error {
	services := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Create(ctx, newService(doomed, 80), metav1.CreateOptions{}); err != nil {
		return err
	}
	nodes := o.nodes()
	if err := soon(ctx, "Service "+doomed, func(ctx context.Context) error { return o.complete(ctx, r, doomed, []int{80}, nodes) }); err != nil {
		return err
	}
	old, err := o.balancer(ctx, tried)
	if err != nil {
		return err
	}
	lost := results.Trial{Part: partOutages, Name: "Octavia: nothing is lost"}
	err = o.stopDuring(ctx, r, "octavia", o.checker.urls[octavia], func(ctx context.Context) error {
		if err := services.Delete(ctx, doomed, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if _, err := services.Create(ctx, newService(late, 80), metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := r.change(ctx, tried, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:2] }); err != nil {
			return err
		}
		if err := pause(ctx, outage-2*time.Second); err != nil {
			return err
		}
		if _, err := services.Get(ctx, doomed, metav1.GetOptions{}); err != nil {
			lost.Details = append(lost.Details, fmt.Sprintf("Service %s while its load balancer is there: %v", doomed, err))
		}
		return nil
	})
	if err != nil {
		return errors.Join(err, o.upAgain())
	}
	return o.afterOctavia(ctx, r, old, lost)
}

// afterOctavia judges what the program does once Octavia answers.
func (o *openStack) afterOctavia(ctx context.Context, r *run, old map[string]any, lost results.Trial) error {
	began, nodes := time.Now(), o.nodes()
	resume := results.Trial{Part: partOutages, Name: "Octavia: what waits goes on", MaxSeconds: resumed.Seconds()}
	failure := soon(ctx, "the first change", func(ctx context.Context) error {
		if _, err := o.balancer(ctx, late); err == nil {
			return nil
		}
		lb, err := o.balancer(ctx, doomed)
		if err == nil && lb["provisioning_status"] == "ACTIVE" {
			if lb, err = o.balancer(ctx, tried); err == nil && lb["updated_at"] == old["updated_at"] {
				return errors.New("nothing was changed yet")
			}
			return err
		}
		return nil
	})
	resume.Seconds = time.Since(began).Seconds()
	resume.Judge()
	if failure != nil {
		resume.Result, resume.Details = results.Failed, []string{failure.Error()}
	}
	r.note(resume)
	if err := o.upAgain(); err != nil {
		return err
	}
	failure = soon(ctx, "all of it", func(ctx context.Context) error {
		_, err := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, doomed, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("service %s is still there: %w", doomed, err)
		}
		if _, err := o.balancer(ctx, doomed); err == nil {
			return fmt.Errorf("the load balancer of %s is still there", doomed)
		}
		if err := o.complete(ctx, r, late, []int{80}, nodes); err != nil {
			return err
		}
		return o.complete(ctx, r, tried, []int{80, 8443}, nodes)
	})
	lost.Seconds = time.Since(began).Seconds()
	o.judgeLost(ctx, &lost, failure, old)
	r.note(lost)
	return ctx.Err()
}

// judgeLost: the load balancer is the one that was there before, and what was to be done is done.
func (o *openStack) judgeLost(ctx context.Context, t *results.Trial, failure error, old map[string]any) {
	now, err := o.balancer(ctx, tried)
	switch {
	case failure != nil:
		t.Details = append(t.Details, failure.Error())
	case err != nil:
		t.Details = append(t.Details, err.Error())
	case now["id"] != old["id"] || now["vip_address"] != old["vip_address"]:
		t.Details = append(t.Details, "the load balancer is another one")
	}
	t.Result = results.Held
	if len(t.Details) > 0 {
		t.Result = results.Failed
	}
}

// novaAway: while Nova is away a node is not ready, and one joins. No Node is deleted, and the new one is initialised afterwards.
func (o *openStack) novaAway(ctx context.Context, r *run) error {
	const silent = "node-4"
	lost := results.Trial{Part: partOutages, Name: "Nova: no Node is lost"}
	err := o.stopDuring(ctx, r, "nova-api", o.checker.urls[nova], func(ctx context.Context) error {
		if err := r.cluster.SetReady(ctx, silent, false); err != nil {
			return err
		}
		return r.cluster.RegisterNode(ctx, harness.NodeSpec{Name: joining, Ready: true})
	})
	if err != nil {
		return errors.Join(err, o.upAgain())
	}
	began := time.Now()
	resume := results.Trial{Part: partOutages, Name: "Nova: the node that waits is initialised", MaxSeconds: resumed.Seconds()}
	failure := soon(ctx, "node "+joining, func(ctx context.Context) error {
		n, err := r.cluster.Kube.CoreV1().Nodes().Get(ctx, joining, metav1.GetOptions{})
		if err == nil && !harness.Initialized(n) {
			err = errors.New("it is not initialised")
		}
		return err
	})
	resume.Seconds = time.Since(began).Seconds()
	resume.Judge()
	if failure != nil {
		resume.Result, resume.Details = results.Failed, []string{failure.Error()}
	}
	r.note(resume)
	list, err := r.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return errors.Join(err, o.upAgain())
	}
	lost.Result = results.Held
	if len(list.Items) != servers {
		lost.Result, lost.Details = results.Failed, []string{fmt.Sprintf("%d of %d Nodes are left", len(list.Items), servers)}
	}
	r.note(lost)
	return errors.Join(o.upAgain(), r.cluster.SetReady(ctx, silent, true))
}
