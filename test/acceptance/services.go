package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// web is the Service that most steps change.
	web = "web"
	// servePort is where the image of the step traffic answers HTTP.
	servePort = 8080
)

func (s *suite) services(ctx context.Context) ([]v1.Service, error) {
	list, err := s.kube.CoreV1().Services(s.space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	return list.Items, nil
}

func (s *suite) service(ctx context.Context, name string) (*v1.Service, error) {
	service, err := s.kube.CoreV1().Services(s.space).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading Service %s: %w", name, err)
	}
	return service, nil
}

// draft is a Service with two ports and the annotations of the run.
func (s *suite) draft(name string, annotations map[string]string) *v1.Service {
	meta := s.meta(name)
	meta.Annotations = maps.Clone(map[string]string(s.Annotations))
	maps.Copy(meta.Annotations, annotations)
	return &v1.Service{
		ObjectMeta: meta,
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": web},
			Ports: []v1.ServicePort{
				{Name: "http", Protocol: v1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(servePort)},
				{Name: "https", Protocol: v1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(servePort)},
			},
		},
	}
}

// serve makes a Service and waits until it has an address and the cloud has all that it asks for.
func (s *suite) serve(ctx context.Context, service *v1.Service, saw *[]string) error {
	planned, err := s.plan(ctx, service)
	if err != nil {
		return err
	}
	if len(planned) == 0 {
		return fmt.Errorf("plan sees nothing to do for Service %s, which does not exist yet", service.Name)
	}
	if _, err := s.kube.CoreV1().Services(s.space).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making Service %s: %w", service.Name, err)
	}
	s.did("Service %s was made", service.Name)
	began := time.Now()
	if err := s.eventually(ctx, "an address of Service "+service.Name, func(ctx context.Context) error {
		now, err := s.service(ctx, service.Name)
		if err == nil && address(now) == "" {
			err = errors.New("its status is empty")
		}
		return err
	}); err != nil {
		return err
	}
	now, err := s.service(ctx, service.Name)
	if err != nil {
		return err
	}
	*saw = append(*saw, fmt.Sprintf("address %s after %.1f s", address(now), time.Since(began).Seconds()))
	return s.waitUntilSettled(ctx, service.Name)
}

func address(service *v1.Service) string {
	if in := service.Status.LoadBalancer.Ingress; len(in) > 0 {
		return cmp.Or(in[0].IP, in[0].Hostname)
	}
	return ""
}

// waitUntilSettled waits until the cloud has what a Service asks for: plan, which looks at the cloud, finds nothing to do.
func (s *suite) waitUntilSettled(ctx context.Context, name string) error {
	return s.eventually(ctx, "the cloud to have what Service "+name+" asks for", func(ctx context.Context) error {
		now, err := s.service(ctx, name)
		if err != nil {
			return err
		}
		planned, err := s.plan(ctx, now)
		if err == nil && len(planned) > 0 {
			err = errors.New("plan still wants: " + words(planned))
		}
		return err
	})
}

// change changes a Service and waits until the cloud follows. It returns what plan said before.
func (s *suite) change(ctx context.Context, name string, mutate func(*v1.Service)) ([]contract.Planned, error) {
	now, err := s.service(ctx, name)
	if err != nil {
		return nil, err
	}
	mutate(now)
	asked, err := s.planAtRest(ctx, now)
	if err != nil {
		return nil, err
	}
	planned := asked.Planned
	before := s.count(ctx)
	if err := s.apply(ctx, name, mutate); err != nil || len(planned) == 0 {
		return planned, err
	}
	return planned, s.mustHaveWritten(ctx, before)
}

// planAtRest asks plan until it has an answer: a cloud may still work on what it shows as done already, and is asked for no change then.
func (s *suite) planAtRest(ctx context.Context, service *v1.Service) (planned plannedService, err error) {
	err = s.eventually(ctx, "plan to tell what the change takes", func(ctx context.Context) (err error) {
		planned, err = s.planned(ctx, service)
		return err
	})
	return planned, err
}

// apply changes a Service and waits until the cloud follows. Unlike change it does for what is taken away as well, which a manifest
// cannot say.
func (s *suite) apply(ctx context.Context, name string, mutate func(*v1.Service)) error {
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := s.kube.CoreV1().Services(s.space).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		mutate(now)
		_, err = s.kube.CoreV1().Services(s.space).Update(ctx, now, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("changing Service %s: %w", name, err)
	}
	s.did("Service %s was changed", name)
	return s.waitUntilSettled(ctx, name)
}

// mustChange is change for what the cloud surely has to be told of.
func (s *suite) mustChange(ctx context.Context, name string, mutate func(*v1.Service), saw *[]string) error {
	planned, err := s.change(ctx, name, mutate)
	if err != nil {
		return err
	}
	if len(planned) == 0 {
		return errors.New("plan saw nothing to do for the change")
	}
	*saw = append(*saw, "planned and done: "+words(planned))
	return nil
}

// hasWeb leaves out a step whose Service is not there because the step create was left out.
func (s *suite) hasWeb(ctx context.Context) error {
	list, err := s.services(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(one v1.Service) bool { return one.Name == web }) {
		return skip("there is no Service, because the step create was left out")
	}
	return nil
}

// tryCreate: a Service of type LoadBalancer gets its address.
func (s *suite) tryCreate(ctx context.Context, saw *[]string) error {
	return s.serve(ctx, s.draft(web, nil), saw)
}

// tryPorts: a port is replaced and one is added.
func (s *suite) tryPorts(ctx context.Context, saw *[]string) error {
	if err := s.hasWeb(ctx); err != nil {
		return err
	}
	return s.mustChange(ctx, web, func(service *v1.Service) {
		service.Spec.Ports = []v1.ServicePort{
			service.Spec.Ports[0],
			{Name: "other", Protocol: v1.ProtocolTCP, Port: 8443, TargetPort: intstr.FromInt32(servePort)},
			{Name: "more", Protocol: v1.ProtocolTCP, Port: 9000, TargetPort: intstr.FromInt32(servePort)},
		}
	}, saw)
}

// trySourceRanges: they are set and removed.
func (s *suite) trySourceRanges(ctx context.Context, saw *[]string) error {
	if err := s.hasWeb(ctx); err != nil {
		return err
	}
	ranges := []string{"192.0.2.0/24", "198.51.100.7/32"}
	if err := s.mustChange(ctx, web, func(service *v1.Service) { service.Spec.LoadBalancerSourceRanges = ranges }, saw); err != nil {
		return err
	}
	before := s.count(ctx)
	if err := s.apply(ctx, web, func(service *v1.Service) { service.Spec.LoadBalancerSourceRanges = nil }); err != nil {
		return err
	}
	return s.mustHaveWritten(ctx, before)
}

// tryTrafficPolicy: externalTrafficPolicy Local, and back.
func (s *suite) tryTrafficPolicy(ctx context.Context, saw *[]string) error {
	if err := s.hasWeb(ctx); err != nil {
		return err
	}
	local, err := s.service(ctx, web)
	if err != nil {
		return err
	}
	local.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
	asked, err := s.planAtRest(ctx, local)
	if err != nil {
		return err
	}
	for _, f := range asked.Findings {
		if f.Warning && strings.Contains(f.Message, "externalTrafficPolicy") {
			return skip("plan says: " + f.Message)
		}
	}
	for _, policy := range []v1.ServiceExternalTrafficPolicy{v1.ServiceExternalTrafficPolicyLocal, v1.ServiceExternalTrafficPolicyCluster} {
		planned, err := s.change(ctx, web, func(service *v1.Service) {
			service.Spec.ExternalTrafficPolicy = policy
			service.Spec.HealthCheckNodePort = 0
		})
		if err != nil {
			return err
		}
		*saw = append(*saw, fmt.Sprintf("%s, planned and done: %s", policy, cmp.Or(words(planned), "nothing")))
	}
	return nil
}

// tryLeaving: a node that gets the exclusion label leaves the load balancer.
func (s *suite) tryLeaving(ctx context.Context, saw *[]string) error {
	if err := s.hasWeb(ctx); err != nil {
		return err
	}
	nodes, err := s.cloudNodes(ctx)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n v1.Node) bool { return !eligible(&n) })
	if len(nodes) < 2 {
		return skip("it takes two nodes that are ready and behind load balancers, for one of them stays")
	}
	node, before := nodes[len(nodes)-1].Name, s.count(ctx)
	if err := s.exclude(ctx, node); err != nil {
		return err
	}
	s.did("node %s was excluded", node)
	*saw = append(*saw, node)
	if err := s.waitUntilSettled(ctx, web); err != nil {
		return err
	}
	return s.mustHaveWritten(ctx, before)
}

// eligible reports whether a Node gets traffic of load balancers.
func eligible(n *v1.Node) bool {
	_, excluded := n.Labels[v1.LabelNodeExcludeBalancers]
	return !excluded && n.DeletionTimestamp == nil && slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

// tryJoining: the node that left joins again once the label is off.
func (s *suite) tryJoining(ctx context.Context, saw *[]string) error {
	nodes, err := s.cloudNodes(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n v1.Node) bool { return n.Annotations[mark] == s.space })
	if i < 0 {
		return skip("no node has left")
	}
	before := s.count(ctx)
	if err := s.restoreNodes(ctx, s.space); err != nil {
		return err
	}
	s.did("node %s is excluded no more", nodes[i].Name)
	*saw = append(*saw, nodes[i].Name)
	if err := s.waitUntilSettled(ctx, web); err != nil {
		return err
	}
	return s.mustHaveWritten(ctx, before)
}

// tryDelete: the Services are deleted, and nothing of them is left in the cloud.
func (s *suite) tryDelete(ctx context.Context, saw *[]string) error {
	services, err := s.services(ctx)
	if err != nil {
		return err
	}
	if len(services) == 0 {
		return skip("there is no Service")
	}
	for _, one := range services {
		if err := s.erase(ctx, one.Name); err != nil {
			return err
		}
	}
	return s.nothingLeft(ctx, saw)
}

// erase deletes a Service and waits until its load balancer is gone.
func (s *suite) erase(ctx context.Context, name string) error {
	services := s.kube.CoreV1().Services(s.space)
	if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting Service %s: %w", name, err)
	}
	s.did("Service %s was deleted", name)
	return s.eventually(ctx, "Service "+name+" to be gone", func(ctx context.Context) error {
		_, err := services.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return errors.New("it is still there")
		}
		return checkGone("Service "+name, err)
	})
}

// nothingLeft waits until orphans shows nothing that was not there before the run.
func (s *suite) nothingLeft(ctx context.Context, saw *[]string) error {
	if err := s.eventually(ctx, "the cloud to be without orphans", func(ctx context.Context) error {
		found, known, err := s.orphans(ctx)
		if err != nil || !known {
			return err
		}
		var names []string
		for key, o := range found {
			if _, old := s.before[key]; !old {
				names = append(names, strings.TrimSpace(key+" "+o.Name))
			}
		}
		if len(names) > 0 {
			return errors.New("orphans shows " + strings.Join(slices.Sorted(slices.Values(names)), ", "))
		}
		return nil
	}); err != nil {
		return err
	}
	if s.before != nil {
		*saw = append(*saw, "orphans shows nothing of this run")
	}
	return nil
}

// tryTraffic: pods answer at the address of the Service.
func (s *suite) tryTraffic(ctx context.Context, saw *[]string) error {
	if err := s.hasWeb(ctx); err != nil {
		return err
	}
	if s.Image == "" {
		return skip("-image is empty")
	}
	anywhere := metav1.ListOptions{FieldSelector: "status.phase=" + string(v1.PodRunning), Limit: 1}
	running, err := s.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, anywhere)
	if err != nil {
		return fmt.Errorf("looking for pods: %w", err)
	}
	if len(running.Items) == 0 {
		return skip("no pod runs in this cluster")
	}
	if err := s.runPods(ctx); err != nil {
		return err
	}
	service, err := s.service(ctx, web)
	if err != nil {
		return err
	}
	url := "http://" + net.JoinHostPort(address(service), "80") + "/"
	if err := s.eventually(ctx, "an answer of "+url, func(ctx context.Context) error { return answers(ctx, url) }); err != nil {
		return err
	}
	*saw = append(*saw, url+" answers")
	return nil
}

// runPods starts two pods behind the Services and waits until they are ready.
func (s *suite) runPods(ctx context.Context) error {
	labels := map[string]string{"app": web}
	deployment := &appsv1.Deployment{ObjectMeta: s.meta(web), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: v1.PodSpec{Containers: []v1.Container{{
				Name: web, Image: s.Image, Args: []string{"netexec", fmt.Sprintf("--http-port=%d", servePort)},
				Ports:          []v1.ContainerPort{{ContainerPort: servePort}},
				ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(servePort), Path: "/"}}},
			}}},
		},
	}}
	if _, err := s.kube.AppsV1().Deployments(s.space).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("starting pods: %w", err)
	}
	s.did("Deployment %s was made", web)
	return s.eventually(ctx, "pods of image "+s.Image, func(ctx context.Context) error {
		now, err := s.kube.AppsV1().Deployments(s.space).Get(ctx, web, metav1.GetOptions{})
		if err == nil && now.Status.ReadyReplicas < 2 {
			err = fmt.Errorf("%d of 2 are ready", now.Status.ReadyReplicas)
		}
		return err
	})
}

// answers asks once.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", url, err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers with HTTP %d", url, answer.StatusCode)
	}
	return nil
}
