//! Roles, users, permissions and identities.
//!
//! Always true: the name of a role may be an identifier, folded to lower case, or a string or quoted name, kept as written.

use super::super::ast::{
    AccessList, AddIdentity, AlterRole, CreateRole, DropIdentity, DropRole, ListPermissions, ListRoles, ListedRoles,
    Password, Permission, PermissionChange, PermissionSet, Resource, RoleMembership, RoleOptions, Statement,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::clauses::{constant_map, function_signature};
use super::cursor::{Parser, Result};

fn role_name(parser: &mut Parser<'_>) -> Result<String> {
    if parser.at_string() { parser.string("role name") } else { parser.identifier("role name") }
}

pub(super) fn create_role(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let name = role_name(parser)?;
    let options = role_options(parser)?;
    Ok(Statement::CreateRole(CreateRole { name, if_not_exists, options }))
}

pub(super) fn alter_role(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_exists = parser.if_exists()?;
    let name = role_name(parser)?;
    let options = role_options(parser)?;
    Ok(Statement::AlterRole(AlterRole { name, if_exists, options }))
}

/// `WITH option AND …` of a role, if it is next; an option may be given once.
fn role_options(parser: &mut Parser<'_>) -> Result<RoleOptions> {
    let mut options = RoleOptions::default();
    if parser.eat(Keyword::With) {
        parser.and_separated(|parser| role_option(parser, &mut options))?;
    }
    Ok(options)
}

fn role_option(parser: &mut Parser<'_>, options: &mut RoleOptions) -> Result<()> {
    let start = parser.current;
    let repeated = match parser.current.kind {
        Kind::Keyword(Keyword::Password | Keyword::Hashed | Keyword::Generated) => {
            let password = password_option(parser)?;
            options.password.replace(password).is_some()
        }
        Kind::Keyword(Keyword::Options) => {
            parser.bump();
            parser.expect_symbol(Symbol::Equal)?;
            options.custom.replace(constant_map(parser)?).is_some()
        }
        Kind::Keyword(Keyword::Superuser) => options.superuser.replace(boolean_option(parser)?).is_some(),
        Kind::Keyword(Keyword::Login) => options.login.replace(boolean_option(parser)?).is_some(),
        Kind::Keyword(Keyword::Access) => {
            parser.bump();
            if parser.eat(Keyword::To) {
                options.datacenters.replace(access_list(parser, Keyword::Datacenters)?).is_some()
            } else {
                parser.expect(Keyword::From)?;
                options.cidrs.replace(access_list(parser, Keyword::Cidrs)?).is_some()
            }
        }
        _ => return Err(parser.unexpected("an option of a role")),
    };
    if repeated { Err(parser.syntax_error(start, "an option of a role may be given once".to_owned())) } else { Ok(()) }
}

fn password_option(parser: &mut Parser<'_>) -> Result<Password> {
    if parser.eat(Keyword::Generated) {
        parser.expect(Keyword::Password)?;
        return Ok(Password::Generated);
    }
    let hashed = parser.eat(Keyword::Hashed);
    parser.expect(Keyword::Password)?;
    parser.expect_symbol(Symbol::Equal)?;
    let text = parser.string("a password in quotes")?;
    Ok(if hashed { Password::Hashed(text) } else { Password::Clear(text) })
}

/// The option at hand `= true` or `= false`
fn boolean_option(parser: &mut Parser<'_>) -> Result<bool> {
    parser.bump();
    parser.expect_symbol(Symbol::Equal)?;
    if parser.eat(Keyword::True) {
        return Ok(true);
    }
    if parser.eat(Keyword::False) {
        return Ok(false);
    }
    Err(parser.unexpected("true or false"))
}

/// `ALL DATACENTERS` or `DATACENTERS {'a', …}`
fn access_list(parser: &mut Parser<'_>, of: Keyword) -> Result<AccessList> {
    if parser.eat(Keyword::All) {
        parser.expect(of)?;
        return Ok(AccessList::All);
    }
    parser.expect(of)?;
    parser.expect_symbol(Symbol::LeftBrace)?;
    let names = parser.comma_separated(|parser| parser.string("a string"))?;
    parser.expect_symbol(Symbol::RightBrace)?;
    Ok(AccessList::Only(names))
}

pub(super) fn create_user(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let name = role_name(parser)?;
    let password = user_password(parser)?;
    let superuser = Some(user_superuser(parser).unwrap_or(false));
    let options = RoleOptions { password, superuser, login: Some(true), ..RoleOptions::default() };
    Ok(Statement::CreateRole(CreateRole { name, if_not_exists, options }))
}

pub(super) fn alter_user(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_exists = parser.if_exists()?;
    let name = role_name(parser)?;
    let password = user_password(parser)?;
    let options = RoleOptions { password, superuser: user_superuser(parser), ..RoleOptions::default() };
    Ok(Statement::AlterRole(AlterRole { name, if_exists, options }))
}

/// `WITH [HASHED] PASSWORD '…'`, if it is next.
fn user_password(parser: &mut Parser<'_>) -> Result<Option<Password>> {
    if !parser.eat(Keyword::With) {
        return Ok(None);
    }
    if parser.eat(Keyword::Generated) {
        parser.expect(Keyword::Password)?;
        return Ok(Some(Password::Generated));
    }
    let hashed = parser.eat(Keyword::Hashed);
    parser.expect(Keyword::Password)?;
    let text = parser.string("a password in quotes")?;
    Ok(Some(if hashed { Password::Hashed(text) } else { Password::Clear(text) }))
}

fn user_superuser(parser: &mut Parser<'_>) -> Option<bool> {
    if parser.eat(Keyword::Superuser) {
        return Some(true);
    }
    parser.eat(Keyword::Nosuperuser).then_some(false)
}

pub(super) fn drop_role(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_exists = parser.if_exists()?;
    Ok(Statement::DropRole(DropRole { name: role_name(parser)?, if_exists }))
}

pub(super) fn add_identity(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    parser.expect(Keyword::Identity)?;
    let if_not_exists = parser.if_not_exists()?;
    let identity = identity(parser)?;
    parser.expect(Keyword::To)?;
    parser.expect(Keyword::Role)?;
    Ok(Statement::AddIdentity(AddIdentity { identity, if_not_exists, role: role_name(parser)? }))
}

pub(super) fn drop_identity(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_exists = parser.if_exists()?;
    Ok(Statement::DropIdentity(DropIdentity { identity: identity(parser)?, if_exists }))
}

fn identity(parser: &mut Parser<'_>) -> Result<String> {
    if parser.at_string() { parser.string("identity") } else { parser.identifier("identity") }
}

/// `LIST` of roles, users or permissions.
pub(super) fn list(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let kind = match parser.current.kind {
        Kind::Keyword(Keyword::Roles) => ListedRoles::Roles,
        Kind::Keyword(Keyword::Users) => ListedRoles::Users,
        Kind::Keyword(Keyword::Superusers) => ListedRoles::Superusers,
        _ => return list_permissions(parser),
    };
    parser.bump();
    let mut of = None;
    let mut no_recursive = false;
    if kind == ListedRoles::Roles {
        of = if parser.eat(Keyword::Of) { Some(role_name(parser)?) } else { None };
        no_recursive = parser.eat(Keyword::Norecursive);
    }
    Ok(Statement::ListRoles(ListRoles { kind, of, no_recursive }))
}

fn list_permissions(parser: &mut Parser<'_>) -> Result<Statement> {
    let permissions = permissions(parser)?;
    let resource = if parser.eat(Keyword::On) { Some(resource(parser)?) } else { None };
    let of = if parser.eat(Keyword::Of) { Some(role_name(parser)?) } else { None };
    let no_recursive = parser.eat(Keyword::Norecursive);
    Ok(Statement::ListPermissions(ListPermissions { permissions, resource, of, no_recursive }))
}

pub(super) fn grant_or_revoke(parser: &mut Parser<'_>) -> Result<Statement> {
    let is_grant = parser.at(Keyword::Grant);
    parser.bump();
    let preposition = if is_grant { Keyword::To } else { Keyword::From };
    if (parser.at_string() || parser.at_identifier()) && parser.followed_by(preposition) {
        let role = role_name(parser)?;
        parser.bump();
        let change = RoleMembership { role, member: role_name(parser)? };
        return Ok(if is_grant { Statement::GrantRole(change) } else { Statement::RevokeRole(change) });
    }
    let permissions = permissions(parser)?;
    parser.expect(Keyword::On)?;
    let resource = resource(parser)?;
    parser.expect(preposition)?;
    let change = PermissionChange { permissions, resource, role: role_name(parser)? };
    Ok(if is_grant { Statement::GrantPermissions(change) } else { Statement::RevokePermissions(change) })
}

/// `ALL [PERMISSIONS]` or a list.
fn permissions(parser: &mut Parser<'_>) -> Result<PermissionSet> {
    if parser.eat(Keyword::All) {
        parser.eat(Keyword::Permissions);
        return Ok(PermissionSet::All);
    }
    let permissions = parser.comma_separated(|parser| {
        let permission = permission(parser)?;
        parser.eat(Keyword::Permission);
        Ok(permission)
    })?;
    Ok(PermissionSet::Only(permissions))
}

fn permission(parser: &mut Parser<'_>) -> Result<Permission> {
    let permission = match parser.current.kind {
        Kind::Keyword(Keyword::Create) => Permission::Create,
        Kind::Keyword(Keyword::Alter) => Permission::Alter,
        Kind::Keyword(Keyword::Drop) => Permission::Drop,
        Kind::Keyword(Keyword::Select) => Permission::Select,
        Kind::Keyword(Keyword::Modify) => Permission::Modify,
        Kind::Keyword(Keyword::Authorize) => Permission::Authorize,
        Kind::Keyword(Keyword::Describe) => Permission::Describe,
        Kind::Keyword(Keyword::Execute) => Permission::Execute,
        Kind::Keyword(Keyword::Unmask) => Permission::Unmask,
        Kind::Keyword(Keyword::SelectMasked) => Permission::SelectMasked,
        _ => return Err(parser.unexpected("a permission")),
    };
    parser.bump();
    Ok(permission)
}

fn resource(parser: &mut Parser<'_>) -> Result<Resource> {
    let kind = parser.current.kind;
    if kind == Kind::Keyword(Keyword::All) && all_of_a_resource_follows(parser) {
        parser.bump();
        return resource_of_all(parser);
    }
    // Words that are free may name a table instead: `GRANT SELECT ON role TO x`.
    let names_table = parser.followed_by(Keyword::To)
        || parser.followed_by(Keyword::From)
        || parser.followed_by(Keyword::Of)
        || parser.followed_by_symbol(Symbol::Dot)
        || parser.following.kind == Kind::End;
    match kind {
        Kind::Keyword(Keyword::Keyspace | Keyword::Schema) => {
            parser.bump();
            Ok(Resource::Keyspace(parser.identifier("keyspace name")?))
        }
        Kind::Keyword(Keyword::Role) if !names_table => {
            parser.bump();
            Ok(Resource::Role(role_name(parser)?))
        }
        Kind::Keyword(Keyword::Function) if !names_table => {
            parser.bump();
            Ok(Resource::Function(function_signature(parser, "function name")?))
        }
        Kind::Keyword(Keyword::Mbean) if !names_table => {
            parser.bump();
            Ok(Resource::Mbean(parser.string("a string")?))
        }
        Kind::Keyword(Keyword::Mbeans) if !names_table => {
            parser.bump();
            Ok(Resource::Mbeans(parser.string("a string")?))
        }
        _ => {
            parser.eat_table_keyword();
            Ok(Resource::Table(parser.qualified_name("table name")?))
        }
    }
}

/// Whether `ALL` is followed by a kind of object.
fn all_of_a_resource_follows(parser: &Parser<'_>) -> bool {
    matches!(
        parser.following.kind,
        Kind::Keyword(Keyword::Keyspaces | Keyword::Tables | Keyword::Roles | Keyword::Functions | Keyword::Mbeans)
            | Kind::Keyword(Keyword::Columnfamilies)
    )
}

/// The kind of object after `ALL`.
fn resource_of_all(parser: &mut Parser<'_>) -> Result<Resource> {
    if parser.eat(Keyword::Keyspaces) {
        return Ok(Resource::AllKeyspaces);
    }
    if parser.eat(Keyword::Roles) {
        return Ok(Resource::AllRoles);
    }
    if parser.eat(Keyword::Mbeans) {
        return Ok(Resource::AllMbeans);
    }
    let functions = parser.eat(Keyword::Functions);
    if functions && !parser.at(Keyword::In) {
        return Ok(Resource::AllFunctions);
    }
    if !functions {
        parser.bump();
    }
    parser.expect(Keyword::In)?;
    if !parser.eat_keyspace_keyword() {
        return Err(parser.unexpected("KEYSPACE"));
    }
    let keyspace = parser.identifier("keyspace name")?;
    Ok(if functions { Resource::AllFunctionsIn(keyspace) } else { Resource::AllTables(keyspace) })
}
