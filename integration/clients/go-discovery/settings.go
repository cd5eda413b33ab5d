package main

import (
	"fmt"
	"reflect"
	"strings"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/prometheus/config"
)

// settingsOf returns all settings of a job with their values, also those that have their defaults. Sections of
// discovery are numbered.
func settingsOf(job *config.ScrapeConfig, placeholders *strings.Replacer) map[string]any {
	settings := map[string]any{}
	addFields(settings, "", reflect.ValueOf(*job), placeholders)
	for index, mechanism := range job.ServiceDiscoveryConfigs {
		value := reflect.Indirect(reflect.ValueOf(mechanism))
		prefix := fmt.Sprintf("%s_sd_configs[%d].", mechanism.Name(), index)
		if value.Kind() == reflect.Struct {
			addFields(settings, prefix, value, placeholders)
		}
	}
	return settings
}

// addFields adds a setting per key of the YAML form, nested keys joined by dots.
func addFields(settings map[string]any, prefix string, of reflect.Value, placeholders *strings.Replacer) {
	for index := range of.NumField() {
		field := of.Type().Field(index)
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		value := of.Field(index)
		switch {
		case name == "-" || !field.IsExported():
		case strings.Contains(options, "inline"):
			addFields(settings, prefix, value, placeholders)
		case name != "":
			addValue(settings, prefix+name, value, placeholders)
		}
	}
}

func addValue(settings map[string]any, key string, value reflect.Value, placeholders *strings.Replacer) {
	if url, ok := value.Interface().(commonconfig.URL); ok && url.URL == nil {
		settings[key] = nil
		return
	}
	if text, ok := value.Interface().(fmt.Stringer); ok && (value.Kind() != reflect.Pointer || !value.IsNil()) {
		settings[key] = placeholders.Replace(text.String())
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			settings[key] = nil
			return
		}
		addValue(settings, key, value.Elem(), placeholders)
	case reflect.Struct:
		addFields(settings, key+".", value, placeholders)
	case reflect.Slice, reflect.Map:
		if value.Len() > 0 {
			settings[key] = placeholders.Replace(fmt.Sprint(value.Interface()))
		} else {
			settings[key] = []string{}
		}
	case reflect.String:
		settings[key] = placeholders.Replace(value.String())
	case reflect.Bool:
		settings[key] = value.Bool()
	default:
		settings[key] = fmt.Sprint(value.Interface())
	}
}
