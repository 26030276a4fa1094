package harness

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/anyccm/cloud-controller-manager/test/controlplane"
)

// Operator looks after an installed release as a cluster does whose machines run something: where the pod of the release is missing it is
// made, and runs the program; a namespace that was deleted goes once it is empty.
type Operator struct {
	cluster *Cluster
	objects []*unstructured.Unstructured
	port    int
	labels  map[string]string
	end     func()

	lock     sync.Mutex
	ccm      *CCM
	restarts int
}

// Operate installs a release with further values, starts it, and looks after it until End. Failures in between go to report.
func (c *Cluster) Operate(ctx context.Context, more Values, report func(error)) (*Operator, error) {
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return nil, err
	}
	o := &Operator{cluster: c, port: ports[0]}
	values := Values{"securePort": o.port}
	for path, value := range more {
		values.Set(path, value)
	}
	if o.objects, err = c.Install(ctx, chartName, values); err != nil {
		return nil, err
	}
	for _, one := range o.objects {
		if one.GetKind() == "DaemonSet" {
			if o.labels, _, err = unstructured.NestedStringMap(one.Object, "spec", "selector", "matchLabels"); err != nil {
				return nil, err
			}
		}
	}
	if len(o.labels) == 0 {
		return nil, errors.New("the chart renders no DaemonSet, or one that selects nothing")
	}
	if err := o.run(ctx); err != nil {
		return nil, err
	}
	o.begin(context.WithoutCancel(ctx), report)
	return o, nil
}

// begin looks after the release until End.
func (o *Operator) begin(ctx context.Context, report func(error)) {
	ctx, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			if err := errors.Join(o.run(ctx), o.endNamespaces(ctx)); err != nil && ctx.Err() == nil {
				report(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	o.end = func() {
		stop()
		group.Wait()
	}
}

// End looks after the release no longer. What runs goes on until the cluster is closed.
func (o *Operator) End() { o.end() }

// CCM is the program that runs now.
func (o *Operator) CCM() *CCM {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.ccm
}

// Restarts counts how often the pod was missing.
func (o *Operator) Restarts() int {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.restarts
}

// run does what a DaemonSet's controller and a kubelet do.
func (o *Operator) run(ctx context.Context) error {
	pods := o.cluster.Kube.CoreV1().Pods(metav1.NamespaceSystem)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: o.labels})})
	if err != nil || len(list.Items) > 0 {
		return err
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.ccm != nil {
		o.ccm.Stop(startTimeout)
		o.restarts++
	}
	if o.ccm, err = o.cluster.StartObjects(ctx, o.objects, o.cluster.Programs.CCM, o.port, nil, nil); err != nil {
		return err
	}
	pod, err := pods.Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: chartName + "-", Labels: o.labels},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: chartName, Image: chartName}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// endNamespaces does what the namespace controller does, which this control plane lacks.
func (o *Operator) endNamespaces(ctx context.Context) error {
	namespaces := o.cluster.Kube.CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range list.Items {
		if n.DeletionTimestamp == nil {
			continue
		}
		services, err := o.cluster.Kube.CoreV1().Services(n.Name).List(ctx, metav1.ListOptions{})
		if err != nil || len(services.Items) > 0 {
			return err
		}
		n.Spec.Finalizers = nil
		if _, err := namespaces.Finalize(ctx, &n, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
