package harness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/charts"
)

const (
	chartName    = "cloud-controller-manager"
	fieldManager = "helm"
)

// Values are the values of the chart.
type Values map[string]any

// Set sets a value by its path, such as Set("metrics.rules.enabled", true).
func (v Values) Set(path string, value any) Values {
	at := map[string]any(v)
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[names[len(names)-1]] = value
	return v
}

// described is the chart's description of a cloud.
type described struct {
	Credentials []struct{ Name, Env string }
	// InCluster are options of a provider without a cloud outside of the cluster; none of others.
	InCluster map[string]string
}

// describe reads what the chart knows of the cluster's cloud.
func (c *Cluster) describe() (described, error) {
	all := map[string]described{}
	text, err := charts.Files.ReadFile(chartName + "/files/providers.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return described{}, fmt.Errorf("reading what the chart knows of the clouds: %w", err)
	}
	cloud, ok := all[c.Provider]
	if !ok {
		return described{}, fmt.Errorf("the chart knows no cloud %q; run make generate", c.Provider)
	}
	return cloud, nil
}

// credential returns the name of the credential that a variable of the program holds, or whose file it names.
func (d described) credential(variable string) (string, bool) {
	for _, c := range d.Credentials {
		if c.Env != "" && (c.Env == variable || c.Env == variable+"_FILE") {
			return c.Name, true
		}
	}
	return "", false
}

// settings are how the program reaches the cluster's cloud.
func (c *Cluster) settings(ctx context.Context) (env map[string]string, file string, err error) {
	if c.Outside != nil {
		return c.Outside.Env, c.Outside.CloudConfig, nil
	}
	if env, err = c.Cloud.Environment(ctx); err == nil {
		file, err = c.Cloud.CloudConfig(ctx)
	}
	return env, file, err
}

// ChartValues are the values with which the chart is installed for the cluster's cloud.
func (c *Cluster) ChartValues(ctx context.Context) (Values, error) {
	values := Values{}.Set("cloudProvider", c.Provider)
	cloud, err := c.describe()
	if err != nil {
		return nil, err
	}
	env, file, err := c.settings(ctx)
	if err != nil {
		return nil, err
	}
	options := map[string]any{}
	for name, value := range env {
		if credential, ok := cloud.credential(name); ok {
			values.Set("credentials.values."+credential, value)
			continue
		}
		options[name] = value
	}
	values.Set("options", options)
	if file != "" {
		if file, err = joinConfig(file, c.CloudConfig); err != nil {
			return nil, err
		}
		values.Set("extraCloudConfig", file)
	}
	return values, nil
}

// joinConfig adds to a configuration file: further lines, or, where the file is an object in JSON, further keys in YAML.
func joinConfig(file, more string) (string, error) {
	if more == "" || !strings.HasPrefix(file, "{") {
		return file + more, nil
	}
	keys := map[string]any{}
	for _, text := range []string{file, more} {
		if err := sigsyaml.Unmarshal([]byte(text), &keys); err != nil {
			return "", fmt.Errorf("joining the configuration file and what is added to it: %w", err)
		}
	}
	text, err := sigsyaml.Marshal(keys)
	return string(text), err
}

// Render returns the objects of a release of the chart in kube-system. The same values are rendered once.
func (c *Cluster) Render(ctx context.Context, release string, values Values) ([]*unstructured.Unstructured, error) {
	text, err := sigsyaml.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("writing the values: %w", err)
	}
	key := release + "\n" + string(text)
	if rendered, ok := c.rendered[key]; ok {
		return Decode(rendered)
	}
	chart := filepath.Join(c.Dir, "chart")
	if _, err := os.Stat(chart); err != nil {
		sub, err := fs.Sub(charts.Files, chartName)
		if err == nil {
			err = os.CopyFS(chart, sub)
		}
		if err != nil {
			return nil, fmt.Errorf("writing the chart: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, c.Programs.Helm, "template", release, chart, "--namespace="+metav1.NamespaceSystem, "--values=-", "--api-versions=monitoring.coreos.com/v1")
	cmd.Stdin = bytes.NewReader(text)
	cmd.Env = append(os.Environ(), "HOME="+c.Dir, "KUBECONFIG=/nonexistent")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	rendered, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("rendering the chart: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	if c.rendered == nil {
		c.rendered = map[string][]byte{}
	}
	c.rendered[key] = rendered
	return Decode(rendered)
}

// Decode reads manifests.
func Decode(text []byte) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("reading what the chart renders: %w", err)
		case len(o.Object) > 0:
			list = append(list, o)
		}
	}
}

// Manifests reads a file of objects, which are in a namespace unless they name another one.
func Manifests(path, namespace string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	objects, err := Decode(text)
	for _, o := range objects {
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
	}
	return objects, err
}

// Apply puts objects into the cluster, as an installation or an upgrade does: each is validated strictly.
func (c *Cluster) Apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	client, err := c.dynamic()
	if err != nil {
		return err
	}
	for _, o := range objects {
		options := metav1.PatchOptions{FieldManager: fieldManager, Force: new(true), FieldValidation: metav1.FieldValidationStrict}
		data, err := o.MarshalJSON()
		if err == nil {
			_, err = c.resource(client, o).Patch(ctx, o.GetName(), "application/apply-patch+yaml", data, options)
		}
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Delete takes objects out of the cluster, as an uninstallation does.
func (c *Cluster) Delete(ctx context.Context, objects []*unstructured.Unstructured) error {
	client, err := c.dynamic()
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(objects) {
		if err := c.resource(client, o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("deleting %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func (c *Cluster) dynamic() (dynamic.Interface, error) {
	config := rest.CopyConfig(c.API.Config())
	config.QPS, config.Burst = 500, 500
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// resource is the path of an object. The kinds that the chart renders have regular plurals.
func (*Cluster) resource(client dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	gvk := o.GroupVersionKind()
	plural := strings.ToLower(gvk.Kind) + "s"
	if strings.HasSuffix(gvk.Kind, "Policy") {
		plural = strings.ToLower(strings.TrimSuffix(gvk.Kind, "y")) + "ies"
	}
	r := client.Resource(schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: plural})
	if o.GetNamespace() == "" {
		return r
	}
	return r.Namespace(o.GetNamespace())
}

// process is how a rendered workload runs the program.
type process struct {
	args []string
	env  map[string]string
	// account is the service account, in the workload's namespace.
	account, namespace string
}

// workload finds the workload among rendered objects, writes the files that it mounts below dir, and returns how it runs
// the program. Paths of mounts become paths below dir; nothing else is changed.
func workload(objects []*unstructured.Unstructured, dir string) (process, error) {
	p := process{env: map[string]string{}}
	template, namespace, err := podTemplate(objects)
	if err != nil {
		return p, err
	}
	container := template.Spec.Containers[0]
	var paths []string
	for _, m := range container.VolumeMounts {
		at := filepath.Join(dir, m.Name)
		paths = append(paths, m.MountPath, at)
		for _, v := range template.Spec.Volumes {
			if v.Name == m.Name && v.Secret != nil {
				if err := writeSecret(objects, v.Secret.SecretName, at); err != nil {
					return p, err
				}
			}
			if v.Name == m.Name && v.ConfigMap != nil {
				if err := writeConfigMap(objects, v.ConfigMap.Name, at); err != nil {
					return p, err
				}
			}
		}
	}
	moved := strings.NewReplacer(paths...)
	p.account, p.namespace = template.Spec.ServiceAccountName, namespace
	for _, a := range container.Args {
		p.args = append(p.args, moved.Replace(a))
	}
	for _, e := range container.Env {
		p.env[e.Name] = moved.Replace(e.Value)
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.namespace" {
			p.env[e.Name] = namespace
		}
	}
	return p, nil
}

// podTemplate returns that of the workload, and the workload's namespace.
func podTemplate(objects []*unstructured.Unstructured) (v1.PodTemplateSpec, string, error) {
	for _, o := range objects {
		var err error
		switch o.GetKind() {
		case "DaemonSet":
			w := &appsv1.DaemonSet{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, w)
			return w.Spec.Template, w.Namespace, err
		case "Deployment":
			w := &appsv1.Deployment{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, w)
			return w.Spec.Template, w.Namespace, err
		}
	}
	return v1.PodTemplateSpec{}, "", errors.New("the chart renders no workload")
}

func writeSecret(objects []*unstructured.Unstructured, name, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("mounting Secret %s: %w", name, err)
	}
	for _, o := range objects {
		if o.GetKind() != "Secret" || o.GetName() != name {
			continue
		}
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil {
			return fmt.Errorf("mounting Secret %s: %w", name, err)
		}
		for key, text := range data {
			content, err := base64.StdEncoding.DecodeString(text)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, key), content, 0o600)
			}
			if err != nil {
				return fmt.Errorf("mounting Secret %s: %w", name, err)
			}
		}
	}
	return nil
}

func writeConfigMap(objects []*unstructured.Unstructured, name, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("mounting ConfigMap %s: %w", name, err)
	}
	for _, o := range objects {
		if o.GetKind() != "ConfigMap" || o.GetName() != name {
			continue
		}
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil {
			return fmt.Errorf("mounting ConfigMap %s: %w", name, err)
		}
		for key, text := range data {
			if err := os.WriteFile(filepath.Join(dir, key), []byte(text), 0o600); err != nil {
				return fmt.Errorf("mounting ConfigMap %s: %w", name, err)
			}
		}
	}
	return nil
}
