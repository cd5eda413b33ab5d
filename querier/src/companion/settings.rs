//! Settings of user interfaces.

use athanor_catalog::TenantDocument;
use athanor_chassis::{Status, TenantId};
use athanor_proto::settings::v1::{
    DeleteSettingsRequest, DeleteSettingsResponse, GetSettingsRequest, GetSettingsResponse,
    SetSettingsRequest, SetSettingsResponse, Setting,
};

use crate::companion::TenantSettings;
use crate::validate::invalid_argument;

/// Prefix of setting keys in the catalog.
const SETTING_KEY_PREFIX: &str = "setting/";
/// Maximum length of a setting name in bytes.
const MAX_SETTING_NAME_BYTES: usize = 256;

impl TenantSettings {
    /// Returns all settings, sorted by name.
    pub async fn get_settings(
        &self,
        tenant: &TenantId,
        _: GetSettingsRequest,
    ) -> Result<GetSettingsResponse, Status> {
        let notes = self.notes(tenant).await?;
        let settings = notes
            .iter()
            .filter_map(|(name, note)| Some(setting(name.strip_prefix(SETTING_KEY_PREFIX)?, note)));
        Ok(GetSettingsResponse { settings: settings.collect() })
    }

    /// Sets a setting, regardless of its previous value. The catalog assigns the time of the change.
    pub async fn set_setting(
        &self,
        tenant: &TenantId,
        request: SetSettingsRequest,
    ) -> Result<SetSettingsResponse, Status> {
        let Setting { name, value, .. } =
            request.setting.ok_or_else(|| invalid_argument("request has no setting; set setting"))?;
        let key = key(&name)?;
        let (key, notes) = self.update_document(tenant, |_| Ok((key.clone(), Some(value.clone())))).await?;
        Ok(SetSettingsResponse { setting: notes.get(&key).map(|note| setting(&name, note)) })
    }

    /// Deletes a setting if it exists.
    pub async fn delete_setting(
        &self,
        tenant: &TenantId,
        request: DeleteSettingsRequest,
    ) -> Result<DeleteSettingsResponse, Status> {
        let key = key(&request.name)?;
        self.update_document(tenant, |_| Ok((key.clone(), None))).await?;
        Ok(DeleteSettingsResponse {})
    }
}

fn setting(name: &str, note: &TenantDocument) -> Setting {
    Setting { name: name.to_owned(), value: note.text.clone(), modified_at: note.updated_at.millis() }
}

fn key(name: &str) -> Result<String, Status> {
    match name.len() {
        0 => Err(invalid_argument("setting has no name; set name")),
        1..=MAX_SETTING_NAME_BYTES => Ok(format!("{SETTING_KEY_PREFIX}{name}")),
        seen => Err(invalid_argument(format!(
            "name of a setting has {seen} bytes, the limit is {MAX_SETTING_NAME_BYTES}; shorten the name"
        ))),
    }
}
