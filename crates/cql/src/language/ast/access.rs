//! Statements about roles and permissions.
//!
//! Always true: the older `USER` statements give the same trees as the `ROLE` statements they stand for (a user is a role that
//! may log in). What is left out: checking that a permission makes sense for a resource.

use super::{FunctionSignature, Literal, QualifiedName};

/// Options of a role; what the text does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// `PASSWORD` or `HASHED PASSWORD`
    pub password: Option<Password>,
    /// `SUPERUSER = …`
    pub superuser: Option<bool>,
    /// `LOGIN = …`
    pub login: Option<bool>,
    /// `OPTIONS = {…}`
    pub custom: Option<Vec<(Literal, Literal)>>,
    /// `ACCESS TO …`
    pub datacenters: Option<AccessList>,
    /// `ACCESS FROM …`
    pub cidrs: Option<AccessList>,
}

/// How a password is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    /// In clear.
    Clear(String),
    /// As a bcrypt hash.
    Hashed(String),
    /// `GENERATED PASSWORD`
    Generated,
}

/// Where a role may connect to or from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessList {
    /// `ALL DATACENTERS`, `ALL CIDRS`
    All,
    /// The ones named; at least one.
    Only(Vec<String>),
}

/// `CREATE ROLE [IF NOT EXISTS] name [WITH …]` or `CREATE USER …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRole {
    /// Its name.
    pub name: String,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// `WITH …`; `CREATE USER` sets `login`, and `superuser` always.
    pub options: RoleOptions,
}

/// `ALTER ROLE [IF EXISTS] name [WITH …]` or `ALTER USER …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterRole {
    /// Its name.
    pub name: String,
    /// A missing one is no error.
    pub if_exists: bool,
    /// What changes.
    pub options: RoleOptions,
}

/// `DROP ROLE [IF EXISTS] name` or `DROP USER …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRole {
    /// Its name.
    pub name: String,
    /// A missing one is no error.
    pub if_exists: bool,
}

/// `LIST ROLES [OF role] [NORECURSIVE]`, `LIST USERS`, `LIST SUPERUSERS`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRoles {
    /// Which rows and columns.
    pub kind: ListedRoles,
    /// Only roles granted to this one.
    pub of: Option<String>,
    /// Not the roles granted to those.
    pub no_recursive: bool,
}

/// Which roles a `LIST` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedRoles {
    /// `ROLES`
    Roles,
    /// `USERS`: roles that may log in
    Users,
    /// `SUPERUSERS`
    Superusers,
}

/// `GRANT role TO member` or `REVOKE role FROM member`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleMembership {
    /// The granted role.
    pub role: String,
    /// To whom.
    pub member: String,
}

/// `GRANT permissions ON resource TO role` or `REVOKE … FROM role`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionChange {
    /// Which.
    pub permissions: PermissionSet,
    /// On what.
    pub resource: Resource,
    /// To or from whom.
    pub role: String,
}

/// `LIST permissions [ON resource] [OF role] [NORECURSIVE]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPermissions {
    /// Which.
    pub permissions: PermissionSet,
    /// On what; on everything when absent.
    pub resource: Option<Resource>,
    /// Of whom; of everybody when absent.
    pub of: Option<String>,
    /// Not those that come from granted roles.
    pub no_recursive: bool,
}

/// Permissions as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionSet {
    /// `ALL [PERMISSIONS]`
    All,
    /// At least one.
    Only(Vec<Permission>),
}

/// One permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the keyword of its name")]
pub enum Permission {
    Create,
    Alter,
    Drop,
    Select,
    Modify,
    Authorize,
    Describe,
    Execute,
    Unmask,
    SelectMasked,
}

impl Permission {
    /// Its keyword.
    pub fn name(self) -> &'static str {
        match self {
            Permission::Create => "CREATE",
            Permission::Alter => "ALTER",
            Permission::Drop => "DROP",
            Permission::Select => "SELECT",
            Permission::Modify => "MODIFY",
            Permission::Authorize => "AUTHORIZE",
            Permission::Describe => "DESCRIBE",
            Permission::Execute => "EXECUTE",
            Permission::Unmask => "UNMASK",
            Permission::SelectMasked => "SELECT_MASKED",
        }
    }
}

/// What permissions are granted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `ALL KEYSPACES`
    AllKeyspaces,
    /// `KEYSPACE name`
    Keyspace(String),
    /// `ALL TABLES IN KEYSPACE name`
    AllTables(String),
    /// `[TABLE] name`
    Table(QualifiedName),
    /// `ALL ROLES`
    AllRoles,
    /// `ROLE name`
    Role(String),
    /// `ALL FUNCTIONS`
    AllFunctions,
    /// `ALL FUNCTIONS IN KEYSPACE name`
    AllFunctionsIn(String),
    /// `FUNCTION name(types)`
    Function(FunctionSignature),
    /// `ALL MBEANS`
    AllMbeans,
    /// `MBEANS 'pattern'`
    Mbeans(String),
    /// `MBEAN 'name'`
    Mbean(String),
}

/// `ADD IDENTITY [IF NOT EXISTS] 'identity' TO ROLE role`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddIdentity {
    /// The identity in the client certificate.
    pub identity: String,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// The role it logs in as.
    pub role: String,
}

/// `DROP IDENTITY [IF EXISTS] 'identity'`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIdentity {
    /// The identity in the client certificate.
    pub identity: String,
    /// A missing one is no error.
    pub if_exists: bool,
}
