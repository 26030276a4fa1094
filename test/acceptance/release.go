package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// release is an installed program as the cluster describes it.
type release struct {
	kind, name string
	namespace  string
	selector   *metav1.LabelSelector
	template   v1.PodTemplateSpec
	container  v1.Container
}

// findRelease finds the workload that runs the program for a cloud.
func findRelease(ctx context.Context, kube kubernetes.Interface, o Options) (*release, error) {
	var all []*release
	sets, err := kube.AppsV1().DaemonSets(o.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking for the release: %w", err)
	}
	for _, d := range sets.Items {
		all = append(all, &release{kind: "DaemonSet", name: d.Name, selector: d.Spec.Selector, template: d.Spec.Template})
	}
	deployments, err := kube.AppsV1().Deployments(o.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking for the release: %w", err)
	}
	for _, d := range deployments.Items {
		all = append(all, &release{kind: "Deployment", name: d.Name, selector: d.Spec.Selector, template: d.Spec.Template})
	}
	all = slices.DeleteFunc(all, func(r *release) bool { return (o.Workload != "" && r.name != o.Workload) || !r.runs(o.Provider) })
	switch len(all) {
	case 0:
		return nil, fmt.Errorf("namespace %s has no DaemonSet or Deployment that runs the program with --cloud-provider=%s; "+
			"install the release, or name its namespace by -namespace", o.Namespace, o.Provider)
	case 1:
		all[0].namespace = o.Namespace
		return all[0], nil
	}
	var names []string
	for _, r := range all {
		names = append(names, r.name)
	}
	return nil, fmt.Errorf("namespace %s has several releases for %s; choose one by -workload: %s", o.Namespace, o.Provider, strings.Join(names, ", "))
}

// runs reports whether a container of the workload is the program with a cloud, and notes which one.
func (r *release) runs(provider string) bool {
	for _, c := range r.template.Spec.Containers {
		if slices.Contains(slices.Concat(c.Command, c.Args), "--cloud-provider="+provider) {
			r.container = c
			return true
		}
	}
	return false
}

// arg is the value of one of the program's arguments.
func (r *release) arg(name, otherwise string) string {
	value := otherwise
	for _, a := range slices.Concat(r.container.Command, r.container.Args) {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			value = v
		}
	}
	return value
}

func (r *release) port() int {
	port, err := strconv.Atoi(r.arg("secure-port", "10258"))
	if err != nil {
		return 0
	}
	return port
}

func (r *release) lease() (namespace, name string) {
	return r.arg("leader-elect-resource-namespace", metav1.NamespaceSystem), r.arg("leader-elect-resource-name", "cloud-controller-manager")
}

func (r *release) pods(ctx context.Context, kube kubernetes.Interface) ([]v1.Pod, error) {
	list, err := kube.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(r.selector)})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of the release: %w", err)
	}
	return list.Items, nil
}

// setting is how the program's commands are run here as the release runs the program: the same credentials, cloud config and options.
type setting struct {
	env []string
	// shared are the arguments that every command takes, clusterName that for some.
	shared      []string
	clusterName string
}

// commandSetting reads it from the workload, and writes the files that it mounts below dir.
func (r *release) commandSetting(
	ctx context.Context, kube kubernetes.Interface, p registry.Provider, o Options, dir string,
) (setting, error) {
	var moves []string
	for _, m := range r.container.VolumeMounts {
		for _, v := range r.template.Spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			at := filepath.Join(dir, v.Name)
			mounted, err := r.mount(ctx, kube, v.VolumeSource, at)
			if err != nil {
				return setting{}, err
			}
			if mounted {
				moves = append(moves, m.MountPath, at)
			}
		}
	}
	moved := strings.NewReplacer(moves...)
	variables, err := r.environment(ctx, kube)
	if err != nil {
		return setting{}, err
	}
	maps.Copy(variables, o.Env)
	s := setting{clusterName: "--cluster-name=" + r.arg("cluster-name", "kubernetes"), env: os.Environ()}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		s.env = append(s.env, name+"="+moved.Replace(variables[name]))
	}
	for _, a := range slices.Concat(r.container.Command, r.container.Args) {
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if strings.HasPrefix(a, "--") && forCommands(p, name) {
			s.shared = append(s.shared, moved.Replace(a))
		}
	}
	return s, nil
}

// forCommands reports whether the commands take a flag of the controllers'.
func forCommands(p registry.Provider, name string) bool {
	if slices.Contains([]string{"cloud-provider", "cloud-config", "service-defaults"}, name) {
		return true
	}
	for _, o := range p.Options {
		if o.Flag == name && name != "" {
			return true
		}
	}
	return false
}

// mount writes the files of a Secret or ConfigMap.
func (r *release) mount(ctx context.Context, kube kubernetes.Interface, v v1.VolumeSource, at string) (bool, error) {
	files := map[string][]byte{}
	switch {
	case v.Secret != nil:
		s, err := kube.CoreV1().Secrets(r.namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("reading the credentials of the release: %w", err)
		}
		files = s.Data
	case v.ConfigMap != nil:
		c, err := kube.CoreV1().ConfigMaps(r.namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("reading the cloud config of the release: %w", err)
		}
		for name, text := range c.Data {
			files[name] = []byte(text)
		}
	default:
		return false, nil
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return false, fmt.Errorf("keeping the files of the release: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(at, filepath.Base(name)), content, 0o600); err != nil {
			return false, fmt.Errorf("keeping the files of the release: %w", err)
		}
	}
	return true, nil
}

// environment are the variables of the program.
func (r *release) environment(ctx context.Context, kube kubernetes.Interface) (map[string]string, error) {
	all := map[string]string{}
	for _, from := range r.container.EnvFrom {
		switch {
		case from.SecretRef != nil:
			s, err := kube.CoreV1().Secrets(r.namespace).Get(ctx, from.SecretRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("reading the environment of the release: %w", err)
			}
			for name, value := range s.Data {
				all[from.Prefix+name] = string(value)
			}
		case from.ConfigMapRef != nil:
			c, err := kube.CoreV1().ConfigMaps(r.namespace).Get(ctx, from.ConfigMapRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("reading the environment of the release: %w", err)
			}
			for name, value := range c.Data {
				all[from.Prefix+name] = value
			}
		}
	}
	for _, e := range r.container.Env {
		value, err := r.variable(ctx, kube, e)
		if err != nil {
			return nil, err
		}
		all[e.Name] = value
	}
	return all, nil
}

func (r *release) variable(ctx context.Context, kube kubernetes.Interface, e v1.EnvVar) (string, error) {
	switch from := e.ValueFrom; {
	case from == nil:
		return e.Value, nil
	case from.SecretKeyRef != nil:
		s, err := kube.CoreV1().Secrets(r.namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading the environment of the release: %w", err)
		}
		return string(s.Data[from.SecretKeyRef.Key]), nil
	case from.ConfigMapKeyRef != nil:
		c, err := kube.CoreV1().ConfigMaps(r.namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading the environment of the release: %w", err)
		}
		return c.Data[from.ConfigMapKeyRef.Key], nil
	case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
		return r.namespace, nil
	}
	return "", nil
}

// leader finds the pod that holds the lease.
func (s *suite) leader(ctx context.Context) (holder string, pod *v1.Pod, err error) {
	namespace, name := s.release.lease()
	lease, err := s.kube.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", nil, fmt.Errorf("reading the lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", nil, fmt.Errorf("nobody holds the lease %s/%s", namespace, name)
	}
	holder = *lease.Spec.HolderIdentity
	host, _, _ := strings.Cut(holder, "_")
	pods, err := s.release.pods(ctx, s.kube)
	if err != nil {
		return "", nil, err
	}
	for i, p := range pods {
		if p.Name == host || p.Spec.NodeName == host || len(pods) == 1 {
			return holder, &pods[i], nil
		}
	}
	return holder, nil, nil
}

// reach opens the way to the metrics of the program that leads.
func (s *suite) reach(ctx context.Context) error {
	if s.MetricsURL != "" {
		s.scraper.url = s.MetricsURL
		return nil
	}
	if s.unforward != nil {
		s.unforward()
		s.unforward = nil
	}
	_, pod, err := s.leader(ctx)
	if err != nil {
		return err
	}
	if pod == nil {
		return errors.New("the program that leads runs in no pod; give -metrics-url")
	}
	s.scraper.url, s.unforward, err = forward(context.WithoutCancel(ctx), s.Kubeconfig, pod.Namespace, pod.Name, s.release.port())
	return err
}
