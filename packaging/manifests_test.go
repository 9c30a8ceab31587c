package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	strict "sigs.k8s.io/yaml"
)

// TestManifests checks that Kubernetes defines every field of the manifests and patches, with the
// types used there.
func TestManifests(t *testing.T) {
	var seen int
	err := filepath.WalkDir("kubernetes", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		docs := yaml.NewYAMLReader(bufioReader(f))
		for {
			text, err := docs.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			seen++
			checkManifest(t, path, text)
		}
	})
	if err != nil || seen < 10 {
		t.Fatalf("%d manifests, %v", seen, err)
	}
}

func checkManifest(t *testing.T, path string, text []byte) {
	var head struct{ APIVersion, Kind string }
	if err := strict.Unmarshal(text, &head); err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	var into any
	switch head.APIVersion + " " + head.Kind {
	case "v1 Pod":
		into = new(corev1.Pod)
	case "v1 Service":
		into = new(corev1.Service)
	case "apps/v1 StatefulSet":
		into = new(appsv1.StatefulSet)
	case "v1 PersistentVolumeClaim":
		into = new(corev1.PersistentVolumeClaim)
	case "batch/v1 Job":
		into = new(batchv1.Job)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		into = new(serviceMonitor)
	case "policy/v1 PodDisruptionBudget":
		into = new(policyv1.PodDisruptionBudget)
	case "networking.k8s.io/v1 NetworkPolicy":
		into = new(networkingv1.NetworkPolicy)
	case "kustomize.config.k8s.io/v1beta1 Kustomization":
		into = new(kustomization)
	default:
		t.Errorf("%s: no type for %s %s", path, head.APIVersion, head.Kind)
		return
	}
	// The YAML library's own strict decoder is not used, because it ignores case in field names, as
	// encoding/json does.
	inJSON, err := strict.YAMLToJSONStrict(text)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	unknown, err := json.UnmarshalStrict(inJSON, into)
	if err = errors.Join(append(unknown, err)...); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if k, ok := into.(*kustomization); ok {
		k.check(t, filepath.Dir(path))
	}
}

// kustomization contains the parts of Kustomize's format that we use.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
	Patches    []struct {
		Path string `json:"path"`
	} `json:"patches"`
	Replicas []struct {
		Name  string `json:"name"`
		Count int    `json:"count"`
	} `json:"replicas"`
	Images []struct {
		Name   string `json:"name"`
		NewTag string `json:"newTag"`
	} `json:"images"`
}

// serviceMonitor contains the parts of the Prometheus Operator's resource that we use.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel  string               `json:"jobLabel"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port string `json:"port"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// check verifies that every file named in k exists.
func (k *kustomization) check(t *testing.T, dir string) {
	names := k.Resources
	for _, p := range k.Patches {
		names = append(names, p.Path)
	}
	for _, n := range names {
		if _, err := os.Stat(filepath.Join(dir, n)); err != nil {
			t.Error(err)
		}
	}
}

// TestSettingsOfManifests runs leasehold config check to verify that each setting in a manifest or
// the Compose file is a flag of serve.
func TestSettingsOfManifests(t *testing.T) {
	known := helpOf(t)
	var seen int
	for _, pattern := range []string{"kubernetes/*/*.yaml", "kubernetes/*/*/*.yaml", "compose/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range variable.FindAllStringSubmatch(string(text), -1) {
				seen++
				flag := "--" + strings.ToLower(strings.ReplaceAll(m[1], "_", "-")) + " "
				if !strings.Contains(known, flag) {
					t.Errorf("%s: LEASEHOLD_%s is no flag of serve", path, m[1])
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d settings are seen", seen)
	}
}
